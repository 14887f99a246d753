package app

import (
	"reflect"
	"testing"

	"github.com/lathe-run/lathe/internal/llm"
	"github.com/lathe-run/lathe/internal/tools"
)

// A parameter that the model client learns and the manifest does not, or the other way round, shows here.
func TestManifest_ConvertsToWhatItConfigures(t *testing.T) {
	t.Parallel()
	for from, to := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[ManifestParams](): reflect.TypeFor[llm.Params](),
		reflect.TypeFor[ManifestPrice]():  reflect.TypeFor[llm.Price](),
		reflect.TypeFor[ManifestRetry]():  reflect.TypeFor[tools.Retry](),
	} {
		if !from.ConvertibleTo(to) {
			t.Errorf("%v does not convert to %v", from, to)
		}
	}
}

func TestManifest_ParamsHaveTheJSONOfTheModelClient(t *testing.T) {
	t.Parallel()
	ours, theirs := reflect.TypeFor[ManifestParams](), reflect.TypeFor[llm.Params]()
	for i := range min(ours.NumField(), theirs.NumField()) {
		if got, want := ours.Field(i).Tag.Get("json"), theirs.Field(i).Tag.Get("json"); got != want {
			t.Errorf("%s is %q in JSON, and %q in llm.Params", ours.Field(i).Name, got, want)
		}
	}
}
