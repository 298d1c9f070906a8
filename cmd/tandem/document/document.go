// SPDX-License-Identifier: Apache-2.0

// Package document has the common parts of tandem's outputs: the version of JSON documents, the
// build of the program, counted nouns.
package document

import (
	"fmt"
	"strings"
)

// V1 is version 1 of a document: later releases may add keys, but neither remove keys nor change their
// meaning. The zero value is ready to use.
type V1 struct{}

// MarshalJSON writes the number.
func (V1) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

// UnmarshalJSON returns an error for other versions.
func (*V1) UnmarshalJSON(text []byte) error {
	if version := strings.TrimSpace(string(text)); version != "1" {
		return fmt.Errorf("read version %s of the document: this program knows version 1", version)
	}
	return nil
}
