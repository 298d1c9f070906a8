// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/resources"
	program "github.com/tandem-k8s/tandem/coordination/version"
)

// version is a version of coordination.proto. The minor number grows with every addition, the major number
// with every change that an older plugin would misinterpret.
type version struct{ major, minor uint32 }

// protocol is the version of this program.
var protocol = version{2, 7}

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// admits returns an error if a server of this version cannot serve a client of another version. Both sides
// check: during a rolling update either side can be newer.
func (v version) admits(client version) error {
	if v.major == client.major {
		return nil
	}
	return fmt.Errorf("the server has protocol version %s and the client %s; the plugins place devices "+
		"independently until both have the same version of Tandem", v, client)
}

// build returns the version of this program, for people.
var build = program.Text

// versionOf returns the version in a message; without a version 0.0, which no program uses.
func versionOf(m *api.Version) version { return version{m.GetMajor(), m.GetMinor()} }

// Limits of a client's messages, besides resources.MaxDevices for each resource. The kubelet accepts about
// 40,000 devices in one message, resource names of up to 317 bytes and device IDs of up to 63 bytes.
const (
	maxMessage = 4 << 20 // bytes
	maxLinks   = 1 << 14
	maxName    = 512 // bytes of a name or an ID
)

// maxAnswer is the maximum size of an answer in bytes: Status contains all devices of all resources, with the
// holders.
const maxAnswer = 64 << 20

// Limits for clients: two plugins, with one connection each, and people.
const (
	maxConnections   = 32
	maxCalls         = 32 // simultaneous, of one connection
	handshakeTimeout = time.Second
	idleTimeout      = 30 * time.Second // of a connection without a call, such as a plugin's Join
)

// checkIDs returns an error for a resource name or device IDs beyond the limits.
func checkIDs(resource string, lists ...[]string) error {
	if resource == "" || len(resource) > maxName {
		return status.Errorf(codes.InvalidArgument, "resource name of %d bytes", len(resource))
	}
	for _, ids := range lists {
		if len(ids) > resources.MaxDevices {
			return status.Errorf(codes.InvalidArgument, "%d devices of %s, more than %d", len(ids), resource,
				resources.MaxDevices)
		}
		for _, id := range ids {
			if id == "" || len(id) > maxName {
				return status.Errorf(codes.InvalidArgument, "device ID of %d bytes of %s", len(id), resource)
			}
		}
	}
	return nil
}

// checkAnnouncement returns an error for an announcement beyond the limits. Clients and servers check.
func checkAnnouncement(m *api.Announcement) error {
	ids := make([]string, 0, min(len(m.GetDevices()), resources.MaxDevices+1))
	for _, d := range m.GetDevices() {
		ids = append(ids, d.GetId())
	}
	if err := checkIDs(m.GetResource(), ids); err != nil {
		return err
	}
	if len(m.GetLinks()) > maxLinks {
		return status.Errorf(codes.InvalidArgument, "%d links, more than %d", len(m.GetLinks()), maxLinks)
	}
	if size := proto.Size(m); size > maxMessage {
		return status.Errorf(codes.InvalidArgument, "%d devices of %s in %d bytes, more than %d", len(ids),
			m.GetResource(), size, maxMessage)
	}
	return nil
}

// isRejection reports whether a server rejected an announcement and would reject a repetition.
func isRejection(err error) bool {
	code := status.Code(err)
	return code == codes.InvalidArgument || code == codes.ResourceExhausted
}
