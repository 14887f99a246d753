// Command worker is Lathe's worker without tools of its own. A program with tools in Go calls lathe.Main in the same way.
package main

import "github.com/lathe-run/lathe"

func main() { lathe.Main(lathe.Program{}) }
