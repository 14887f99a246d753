package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lathe-run/lathe/schemas"
)

// maxDetail bounds what is kept of a provider's own words, for logs.
const maxDetail = 512

// apiError is what a provider says about a request that it did not answer.
type apiError struct {
	status  int
	code    string
	kind    string
	param   string
	message string
}

// Error is for logs only: the provider's words may quote the request.
func (e *apiError) Error() string {
	parts := []string{"status " + strconv.Itoa(e.status)}
	for _, s := range []string{e.kind, e.code, e.param, e.message} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// readAPIError takes what it can of an error body: the forms of OpenAI and Anthropic ({"error": {...}}), Mistral (flat),
// vLLM (either), FastAPI ({"detail": ...}), Ollama ({"error": "..."}), or of a proxy that speaks no JSON.
func readAPIError(status int, body []byte, secret string) *apiError {
	type fields struct {
		Code    any    `json:"code"`
		Type    string `json:"type"`
		Param   any    `json:"param"`
		Message any    `json:"message"`
		Detail  any    `json:"detail"`
	}
	var doc struct {
		Error json.RawMessage `json:"error"`
		fields
	}
	e := &apiError{status: status}
	if json.Unmarshal(body, &doc) != nil {
		return e
	}
	f := doc.fields
	if len(doc.Error) > 0 {
		var inner fields
		if json.Unmarshal(doc.Error, &inner) == nil {
			f = inner
		} else {
			f.Message = doc.Error
		}
	}
	e.code, e.kind, e.param = word(text(f.Code)), word(f.Type), word(text(f.Param))
	message := text(f.Message)
	if message == "" {
		message = text(f.Detail)
	}
	if secret != "" {
		message = strings.ReplaceAll(message, secret, "[key]")
	}
	e.message = strings.ToValidUTF8(message[:min(len(message), maxDetail)], "")
	return e
}

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		return string(b)
	}
}

var wordPattern = regexp.MustCompile(`^[A-Za-z0-9_.\[\]-]{1,64}$`)

// word keeps what is one of the provider's fixed words or a path; anything else might be content.
func word(s string) string {
	if wordPattern.MatchString(s) {
		return s
	}
	return ""
}

// exchangeError classifies what came of a request that gave no usable response: err of the SDK, and res if there was one.
func (c Config) exchangeError(res *http.Response, err error, secret string) error {
	if res == nil {
		return c.transportError(err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		body, readErr := io.ReadAll(res.Body)
		if readErr != nil {
			return c.transportError(readErr)
		}
		return c.statusError(res.Header, readAPIError(res.StatusCode, body, secret))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		// The transport was content, the JSON is cut: something between us and the model broke off.
		return c.unavailable(0, "the model's answer was cut off", err)
	}
	return &schemas.Error{
		Code: schemas.CodeModelInvalidResponse, Err: err,
		Message: fmt.Sprintf("the answer is not what %s sends: check base_url of model %s", c.Provider, c.Name),
	}
}

func (c Config) transportError(err error) error {
	if errors.Is(err, errResponseTooLarge) {
		return invalidResponse("the answer has more than %d bytes", maxResponseBytes)
	}
	return c.unavailable(0, "the model's server could not be reached or hung up", err)
}

// unavailable is a failure that may pass.
func (c Config) unavailable(after time.Duration, message string, err error) error {
	return &schemas.Error{
		Class: schemas.ClassRetryable, Code: schemas.CodeModelUnavailable, Message: message, RetryAfter: after, Err: err,
	}
}

func invalidResponse(format string, args ...any) error {
	return schemas.Errorf(schemas.CodeModelInvalidResponse, format, args...)
}

func refused(message string, err error) error {
	return &schemas.Error{Code: schemas.CodeModelRefused, Message: message, Err: err}
}

// statusError classifies a status that is not success. What may pass is retried, whatever else is the matter with it; the
// rest needs a person, so its message says what to do.
func (c Config) statusError(h http.Header, e *apiError) error {
	if e.policy() {
		return refused("the provider's content policy stopped the request", e)
	}
	if c.mayPass(h, e) {
		return c.unavailable(retryAfter(h, time.Now()), fmt.Sprintf("the model's server answered with status %d", e.status), e)
	}
	return &schemas.Error{
		Code:    schemas.CodeModelUnavailable,
		Message: fmt.Sprintf("the model's server answered with status %d%s: %s", e.status, e.words(), c.advice(e)),
		Err:     e,
	}
}

// policy reports whether a filter stopped the request, not a fault in it.
func (e *apiError) policy() bool {
	switch e.code {
	case "content_filter", "content_policy_violation", "moderation_blocked", "ResponsibleAIPolicyViolation":
		return e.status < http.StatusInternalServerError
	}
	return false
}

// mayPass reports whether the same request may succeed later.
func (c Config) mayPass(h http.Header, e *apiError) bool {
	if e.noCredit() {
		// Sent as 429 by some, yet only money helps.
		return false
	}
	switch h.Get("X-Should-Retry") {
	case "true":
		return true
	case "false":
		return false
	}
	switch e.status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return e.status >= http.StatusInternalServerError
}

// words are the provider's fixed words about the fault.
func (e *apiError) words() string {
	var words []string
	for _, w := range []string{e.kind, e.code, e.param} {
		if w != "" && w != strconv.Itoa(e.status) && (len(words) == 0 || words[len(words)-1] != w) {
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

// tooLong and noCredit recognise faults that some providers have no code for.
func (e *apiError) tooLong() bool {
	return e.code == "context_length_exceeded" || e.code == "string_above_max_length" ||
		strings.HasPrefix(e.message, "prompt is too long") || strings.Contains(e.message, "maximum context length")
}

func (e *apiError) noCredit() bool {
	switch e.code {
	case "insufficient_quota", "billing_hard_limit_reached", "billing_not_active":
		return true
	}
	return e.status == http.StatusPaymentRequired || strings.Contains(e.message, "credit balance is too low")
}

// advice says what somebody can do about a request that will never succeed as it is.
func (c Config) advice(e *apiError) string {
	if e.tooLong() {
		return "the conversation is longer than the model takes: lower the agent's limits.context_bytes"
	}
	if e.noCredit() {
		return fmt.Sprintf("the account of model %s has no credit left", c.Name)
	}
	switch e.status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return fmt.Sprintf("it does not take this request: check model and params of model %s, and the schemas of the tools", c.Name)
	case http.StatusUnauthorized:
		return "it does not know the key: check api_key_env or api_key_file of model " + c.Name
	case http.StatusForbidden:
		return fmt.Sprintf("the key of model %s may not do this: check its rights, its project and the region", c.Name)
	case http.StatusNotFound:
		return "there is no such model or path: check model and base_url of model " + c.Name
	case http.StatusRequestEntityTooLarge:
		return "the request is too large: lower the agent's limits.context_bytes"
	}
	if e.status < http.StatusBadRequest {
		return "it redirects elsewhere: put the final address in base_url of model " + c.Name
	}
	return "check base_url and model of model " + c.Name
}

// retryAfter is how long the provider asks to wait: seconds, milliseconds in a header of their own, or a date. 0 when it
// does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if d, ok := number(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	v := h.Get("Retry-After")
	if d, ok := number(v, time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// number reads a count of units; what is beyond a day is a day, so that it can't overflow.
func number(s string, unit time.Duration) (time.Duration, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || f != f || f < 0 {
		return 0, false
	}
	const day = 24 * time.Hour
	if f > float64(day/unit) {
		return day, true
	}
	return time.Duration(f * float64(unit)), true
}
