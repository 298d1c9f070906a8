// SPDX-License-Identifier: Apache-2.0

package system

// Complaint is the last error of repeated work, so that each error is logged once. The zero value is that of
// work without an error so far.
type Complaint struct{ text string }

// IsNew stores the result of an attempt, nil for a success, and reports whether it is an error other than
// that of the attempt before.
func (c *Complaint) IsNew(err error) bool {
	before := c.text
	if c.text = ""; err != nil {
		c.text = err.Error()
	}
	return c.text != "" && c.text != before
}
