//go:build !race

package consumer

const underRace = false
