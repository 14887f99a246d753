package fact

// AppendStep appends the messages that a finished step adds to a conversation: the response, and a result for each of its calls
// in the order they were asked for.
func AppendStep(dst []Message, resp *Response, results []*Result) []Message {
	dst = append(dst, Message{
		Role: RoleAssistant, Text: resp.Text, Calls: resp.Calls, Opaque: resp.Opaque, Provider: resp.Provider,
	})
	for i, res := range results {
		dst = append(dst, Message{
			Role: RoleTool, Text: res.ModelText(), CallID: resp.Calls[i].CallID, Tool: resp.Calls[i].Name, Failed: !res.OK(),
		})
	}
	return dst
}
