// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"strings"
)

// Count returns "1 VF" or "3 VFs"; of "file or folder" the plural is "files or folders".
func Count[N int | uint](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, strings.Replace(noun, " or ", "s or ", 1))
}

// CountAre returns "1 VF is" or "3 VFs are".
func CountAre(n int, noun string) string {
	if n == 1 {
		return Count(n, noun) + " is"
	}
	return Count(n, noun) + " are"
}
