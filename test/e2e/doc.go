// Package e2e runs the main job with the programs as they are built, in the world
// of test/world and test/site, on stand-ins for the drivers' manifests: from choosing releases on the
// connected host to upgrades in a cluster.
package e2e
