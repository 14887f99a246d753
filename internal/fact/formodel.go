package fact

import (
	"encoding/json"
	"strings"
)

// ModelText is what the model is told: a string as it is, any other output as its canonical JSON, a failure as
// {"error":{"code","message"}} with the text the tool marked as safe, if it did.
func (r *Result) ModelText() string {
	if !r.OK() {
		return r.errorText()
	}
	if len(r.Output) > 0 && r.Output[0] == '"' {
		var s string
		if err := json.Unmarshal(r.Output, &s); err == nil {
			return s
		}
	}
	return string(r.Output)
}

func (r *Result) errorText() string {
	type text struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	told := text{Code: string(r.Code), Message: r.Message}
	if r.ForModel != "" {
		told.Message = r.ForModel
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]text{"error": told}); err != nil {
		return `{"error":{"code":"internal","message":"the result could not be written"}}`
	}
	return strings.TrimSuffix(b.String(), "\n")
}
