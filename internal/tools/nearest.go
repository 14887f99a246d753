package tools

// Nearest is the candidate with the fewest edits from name, or "" when none is near enough to be meant: what an error about a
// wrong name suggests.
func Nearest(name string, candidates []string) string {
	best, bestEdits := "", len(name)/2+1
	for _, c := range candidates {
		if n := editDistance(name, c); n < bestEdits {
			best, bestEdits = c, n
		}
	}
	return best
}

// editDistance counts the insertions, deletions and replacements of bytes that turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			edits := diagonal
			if a[i] != b[j] {
				edits++
			}
			diagonal = row[j+1]
			row[j+1] = min(edits, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
