// Package e2e runs the main job with the built programs, from choosing releases on the connected host to upgrades in
// a cluster. It uses test/world and test/site, and stand-ins for the drivers' manifests.
package e2e
