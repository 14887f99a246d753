package llm

import (
	"crypto/sha256"
	"strconv"
)

// shortID derives a call id from what identifies the call. Nine letters and digits are the one form that every provider
// takes: Mistral takes no other, OpenAI at most 40 characters, Anthropic no punctuation.
func shortID(parts ...string) string {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	sum := h.Sum(nil)
	id := make([]byte, 9)
	for i := range id {
		id[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	return string(id)
}

// madeID is the id of a call that its server gave none.
func madeID(turnID string, step, position int) string {
	return shortID(turnID, strconv.Itoa(step), strconv.Itoa(position))
}

// aliases translates the call ids of messages that another provider made. Its own messages go back as they came, with the
// ids that stand in them.
type aliases map[string]string

func (a aliases) foreign(id string) string {
	alias := shortID(id)
	a[id] = alias
	return alias
}

func (a aliases) own(id string) { delete(a, id) }

func (a aliases) of(id string) string {
	if alias, ok := a[id]; ok {
		return alias
	}
	return id
}
