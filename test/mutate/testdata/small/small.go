// SPDX-License-Identifier: Apache-2.0

// Package small has mutations whose outcome the name of the function tells.
package small

// Level is a type of its own, as constants have.
type Level uint8

// Levels are initialized before main.
var Levels = map[string]Level{"high": 255}

// Dead is tested at both sides of its boundary.
func Dead(n int) (text string) {
	text = "small"
	if n > 10 && n != 12 {
		text = "large"
	}
	return text
}

// Hangs is tested, and its loop has no other end.
func Hangs(n int) (sum int) {
	for n > 0 {
		n--
		sum += 2
	}
	return sum
}

// Survives is run by a test that looks at nothing.
func Survives(n int) bool {
	switch {
	case n < 3:
		n++
	}
	return n == 5 || n == 6
}

// NotReached is not tested.
func NotReached(list []string) {
	delete(Levels, list[1])
}
