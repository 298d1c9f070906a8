// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// otherDriver is another driver on the node.
const otherDriver = "dra.example.com"

// foreign are files and objects of another driver, and of another node.
type foreign struct {
	files   map[string][]byte // in memory and on the disk
	objects map[string]string // versions by path
}

// makeForeign makes foreign files and slices.
func (n *Node) makeForeign() (foreign, error) {
	f := foreign{
		files: map[string][]byte{
			filepath.Join(n.cdiDir(), otherDriver+"-claim_uid.json"):             []byte(`{"cdiVersion": "0.5.0"}`),
			filepath.Join(n.kubeletDir(), "plugins", otherDriver, "claims.json"): []byte(`{}`),
			filepath.Join(n.kubeletDir(), "plugins_registry", otherDriver):       []byte(`{}`),
		},
		objects: map[string]string{},
	}
	for _, of := range []struct{ driver, node string }{{otherDriver, nodeName}, {pool.Driver, "node-2"}} {
		slice := &resourceapi.ResourceSlice{
			TypeMeta:   sliceType,
			ObjectMeta: metav1.ObjectMeta{Name: "00000-" + of.driver + "-" + of.node},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: of.driver, NodeName: &of.node,
				Pool:    resourceapi.ResourcePool{Name: of.node, Generation: 1, ResourceSliceCount: 1},
				Devices: []resourceapi.Device{{Name: "device-0"}},
			},
		}
		path := slicesPath + "/" + slice.Name
		n.server.edit(func() {
			n.server.put(path, slice)
			f.objects[path] = slice.ResourceVersion
		})
	}
	return f, f.restore()
}

// restore writes the files, as after a boot.
func (f foreign) restore() error {
	for name, content := range f.files {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return fmt.Errorf("write a foreign file: %w", err)
		}
	}
	return nil
}

// changed names a foreign file or object that has changed; "" for none.
func (f foreign) changed(s *server) string {
	for name, content := range f.files {
		if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, content) {
			return filepath.Base(name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, version := range f.objects {
		if o, ok := s.objects[path]; !ok || o.GetResourceVersion() != version {
			return path
		}
	}
	return ""
}
