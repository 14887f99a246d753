//go:build race

package consumer

// underRace says that the race detector slows everything down.
const underRace = true
