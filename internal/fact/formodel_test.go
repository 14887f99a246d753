package fact

import (
	"testing"

	"github.com/lathe-run/lathe/schemas"
)

func TestResult_ModelText(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		result Result
		want   string
	}{
		{"a string as it is", Result{Status: schemas.StatusOK, Output: []byte(`"two\nlines <b>"`)}, "two\nlines <b>"},
		{"anything else as JSON", Result{Status: schemas.StatusOK, Output: []byte(`{"a":1.0,"b":"<b>"}`)}, `{"a":1.0,"b":"<b>"}`},
		{"null", Result{Status: schemas.StatusOK, Output: []byte(`null`)}, `null`},
		{
			"a failure",
			Result{Status: schemas.StatusError, Code: schemas.CodeUnknownTool, Message: "unknown tool 'x'; available: a, <b>"},
			`{"error":{"code":"unknown_tool","message":"unknown tool 'x'; available: a, <b>"}}`,
		},
		{
			"a failure whose text the tool marked safe",
			Result{Status: schemas.StatusDenied, Code: schemas.CodeToolRefused, Message: "the tool refused", ForModel: `closed on "Sundays"`},
			`{"error":{"code":"tool_refused","message":"closed on \"Sundays\""}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := tc.result.ModelText(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
