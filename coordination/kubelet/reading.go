// SPDX-License-Identifier: Apache-2.0

package kubelet

import "errors"

// ErrNotRead is the error of what nobody has read.
var ErrNotRead = errors.New("not read")

// Reading is a value that a reader has read, or why the value is unknown, for structs that keep what was
// read. The zero value was not read.
type Reading[T any] struct {
	value T
	err   error
	read  bool
}

// Read returns the result of a reader.
func Read[T any](value T, err error) Reading[T] { return Reading[T]{value, err, true} }

// IsKnown reports whether the value was read.
func (r Reading[T]) IsKnown() bool { return r.read && r.err == nil }

// Get returns the value, or why the value is unknown.
func (r Reading[T]) Get() (value T, err error) {
	switch {
	case !r.read:
		return value, ErrNotRead
	case r.err != nil:
		return value, r.err
	default:
		return r.value, nil
	}
}
