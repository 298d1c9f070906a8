// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Write writes the events as JSON, one event per line.
func (h History) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	for _, e := range h.Events {
		if err := encoder.Encode(e); err != nil {
			return fmt.Errorf("write history: %w", err)
		}
	}
	return nil
}

// Read reads the events of [History.Write].
func Read(r io.Reader) (History, error) {
	var h History
	for decoder := json.NewDecoder(r); ; {
		var e Event
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return h, nil
		case err != nil:
			return h, fmt.Errorf("read history: event %d: %w", len(h.Events)+1, err)
		}
		h.Events = append(h.Events, e)
	}
}
