package tools

// needed reports whether anything is stripped in this place or below it.
func (s *strip) needed(seen map[*strip]bool) bool {
	if s == nil || seen[s] {
		return false
	}
	seen[s] = true
	if len(s.absent) > 0 || s.items.needed(seen) || s.same.needed(seen) {
		return true
	}
	for _, f := range s.fields {
		if f.needed(seen) {
			return true
		}
	}
	return false
}

// apply takes the nulls out of v that stand for absent properties.
func (s *strip) apply(v any) {
	// References that lead nowhere but to each other end here too.
	for hops := 0; s != nil && s.same != nil && hops < maxDepth; hops++ {
		s = s.same
	}
	if s == nil {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for name := range s.absent {
			if item, ok := v[name]; ok && item == nil {
				delete(v, name)
			}
		}
		for name, item := range v {
			s.fields[name].apply(item)
		}
	case []any:
		for _, item := range v {
			s.items.apply(item)
		}
	}
}
