// SPDX-License-Identifier: Apache-2.0

package before

import "regexp"

// version is the version in a file of the daemons.
var version = regexp.MustCompile(`"version": ?\d+`)

// Newer returns a file of the daemons as if of a version after this one.
func Newer(content []byte) []byte { return version.ReplaceAll(content, []byte(`"version":9999`)) }
