// SPDX-License-Identifier: Apache-2.0

package document_test

import (
	"encoding/json"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/document"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	var d struct {
		Version document.V1 `json:"version"`
	}
	if text, err := json.Marshal(d); err != nil || string(text) != `{"version":1}` {
		t.Errorf("writes %s, %v", text, err)
	}
	for text, known := range map[string]bool{`{"version":1}`: true, `{}`: true, `{"version":2}`: false} {
		if err := json.Unmarshal([]byte(text), &d); (err == nil) != known {
			t.Errorf("reads %s: %v", text, err)
		}
	}
}
