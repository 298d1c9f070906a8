// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"hash/crc32"

	"github.com/tandem-k8s/tandem/coordination/admission"
)

// constant is a layout of the kubelet's checkpoint without its content.
func constant(text string) func([]byte) []byte { return func([]byte) []byte { return []byte(text) } }

// deeper is a layout of the kubelet's checkpoint with all keys below another one.
func deeper(content []byte) []byte { return fmt.Appendf(nil, `{"V2":%s}`, content) }

// deeperFile returns the coordinator's file with its state below another key, and the checksum of the new
// state.
func deeperFile(content []byte) []byte {
	var file struct {
		Version  int             `json:"version"`
		Boot     string          `json:"boot"`
		Checksum uint32          `json:"checksum"`
		Value    json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return content
	}
	file.Value = fmt.Appendf(nil, `{"state":%s}`, file.Value)
	file.Checksum = crc32.ChecksumIEEE(file.Value)
	encoded, _ := json.Marshal(file) // cannot fail: it was read
	return encoded
}

// leaving returns a condition under which the coordinator's server dies, and the next one finds its file
// changed.
func leaving(how string) func(*Simulation) error {
	return func(s *Simulation) error {
		server := s.server()
		if server == nil {
			return nil
		}
		s.killed(server, how+admission.StateFile)
		if err := s.bury(); err != nil {
			return err
		}
		return s.begin(server.name)
	}
}
