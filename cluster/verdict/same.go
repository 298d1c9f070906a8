// SPDX-License-Identifier: Apache-2.0

package verdict

import "encoding/binary"

// Same is a text that is equal for states of nodes with equal objects, but for what is held, if they will say
// the same to every pod that holds nothing yet. It is "" where that cannot be told: with managers.
func (s *State) Same() string {
	if s.managers != nil {
		return ""
	}
	text := make([]byte, 0, 8*len(s.taken))
	for _, word := range s.taken {
		text = binary.LittleEndian.AppendUint64(text, word)
	}
	return string(text)
}
