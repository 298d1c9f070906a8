// SPDX-License-Identifier: Apache-2.0

// Package document is what the JSON documents of tandem have in common.
package document

import (
	"fmt"
	"strings"
)

// V1 is the version of a document, 1: keys are added to it, and none changes its meaning or goes. Its zero
// value is ready to be written.
type V1 struct{}

// MarshalJSON writes the number.
func (V1) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

// UnmarshalJSON refuses other versions.
func (*V1) UnmarshalJSON(text []byte) error {
	if version := strings.TrimSpace(string(text)); version != "1" {
		return fmt.Errorf("read version %s of the document: this program knows version 1", version)
	}
	return nil
}
