// Package architecture checks the structure: which package may import which, what is at the top level, and what may
// not be in the sources.
package architecture
