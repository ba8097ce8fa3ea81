// Package architecture keeps the structure: which package may import which,
// what lies at the top level, and what may not be in the sources.
package architecture
