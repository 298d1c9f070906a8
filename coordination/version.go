// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/api"
	program "github.com/tandem-k8s/tandem/version"
)

// version is a version of coordination.proto. The minor number grows with every addition, the major number
// with every change that an older plugin would misinterpret.
type version struct{ major, minor uint32 }

// protocol is the version of this program.
var protocol = version{2, 3}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// serves returns an error if a server of this version cannot serve a client of another version. Both sides
// check: during a rolling update either side can be newer.
func (v version) serves(client version) error {
	if v.major == client.major {
		return nil
	}
	return fmt.Errorf("the server speaks protocol %s and the client %s: they place devices without each other "+
		"until both plugins have the same version of Tandem", v, client)
}

// build is the version of this program, for people.
var build = program.Text

// versionOf returns the version in a message; a message without one has 0.0, which no program uses.
func versionOf(m *api.Version) version { return version{m.GetMajor(), m.GetMinor()} }
