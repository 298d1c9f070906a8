// SPDX-License-Identifier: Apache-2.0

package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrNewer means a file of a newer version of its program. Only that version may replace the file.
var ErrNewer = errors.New("the file is of a newer version")

// Layout is what a JSON file of a program always has. A file without it is unknown, not empty.
type Layout struct {
	Version int      // value of the key "version"; 0 for a file without this key
	Keys    []string // with a dot between the levels
}

// Decode decodes a JSON file that another process has written. The error of a newer version is an ErrNewer.
func Decode[T any](content []byte, layout Layout) (value T, err error) {
	if err := layout.check(content); err != nil {
		return value, err
	}
	if err := json.Unmarshal(content, &value); err != nil {
		return value, fmt.Errorf("parse JSON: %w", err)
	}
	return value, nil
}

// check returns an error for a file without the layout.
func (l Layout) check(content []byte) error {
	if l.Version > 0 {
		var file struct{ Version int }
		if err := json.Unmarshal(content, &file); err != nil {
			return fmt.Errorf("parse JSON: %w", err)
		}
		switch {
		case file.Version > l.Version:
			return fmt.Errorf("%w: it has version %d, this is %d", ErrNewer, file.Version, l.Version)
		case file.Version < l.Version:
			return fmt.Errorf("the file has version %d, this is %d", file.Version, l.Version)
		}
	}
	return checkKeys(content, l.Keys)
}

// checkKeys returns an error if an object lacks a key.
func checkKeys(content []byte, keys []string) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(content, &object); err != nil {
		return fmt.Errorf("parse JSON: %w", err)
	}
	below := map[string][]string{}
	for _, key := range keys {
		name, rest, deeper := strings.Cut(key, ".")
		if _, there := object[name]; !there {
			return fmt.Errorf("the layout is unknown: there is no key %q", name)
		}
		if deeper {
			below[name] = append(below[name], rest)
		}
	}
	for name, keys := range below {
		if err := checkKeys(object[name], keys); err != nil {
			return fmt.Errorf("key %s: %w", name, err)
		}
	}
	return nil
}
