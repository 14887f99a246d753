package fact

// StepMessages are the messages that a finished step adds to a conversation: the response, and a result for each of its calls
// in the order they were asked for.
func StepMessages(resp *Response, results []*Result) []Message {
	out := make([]Message, 0, 1+len(results))
	out = append(out, Message{
		Role: RoleAssistant, Text: resp.Text, Calls: resp.Calls, Opaque: resp.Opaque, Provider: resp.Provider,
	})
	for i, res := range results {
		out = append(out, Message{
			Role: RoleTool, Text: res.ModelText(), CallID: resp.Calls[i].CallID, Tool: resp.Calls[i].Name, Failed: !res.OK(),
		})
	}
	return out
}
