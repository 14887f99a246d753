package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/lathe-run/lathe/internal/app"
)

// versionText names the build: the program's own version if it has one, Lathe's, the revision and the Go version.
func versionText(p app.Program) string {
	lathe, revision := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		lathe = moduleVersion(info)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " " + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	text := fmt.Sprintf("lathe %s%s %s %s/%s", lathe, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if p.Version != "" {
		text = p.Version + " (" + text + ")"
	}
	return text
}

// moduleVersion is the version of Lathe in this build, as the main module or as a dependency of a user's program.
func moduleVersion(info *debug.BuildInfo) string {
	const module = "github.com/lathe-run/lathe"
	if info.Main.Path == module && info.Main.Version != "" {
		return info.Main.Version
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return d.Version
		}
	}
	return "(devel)"
}
