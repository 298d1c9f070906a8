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
	"github.com/tandem-k8s/tandem/test/apiserver"
)

// otherDriver is another driver on the node.
const otherDriver = "dra.example.com"

// foreign are files and objects of another driver, and of another node.
type foreign struct {
	files   map[string][]byte // in memory and on the disk
	objects map[string]string // versions of slices by name
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
			ObjectMeta: metav1.ObjectMeta{Name: "00000-" + of.driver + "-" + of.node},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: of.driver, NodeName: &of.node,
				Pool:    resourceapi.ResourcePool{Name: of.node, Generation: 1, ResourceSliceCount: 1},
				Devices: []resourceapi.Device{{Name: "device-0"}},
			},
		}
		n.server.Put(slice)
		f.objects[slice.Name] = versionOf(n.server, slice.Name)
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
func (f foreign) changed(s *apiserver.Server) string {
	for name, content := range f.files {
		if now, err := os.ReadFile(name); err != nil || !bytes.Equal(now, content) {
			return filepath.Base(name)
		}
	}
	for name, version := range f.objects {
		if versionOf(s, name) != version {
			return name
		}
	}
	return ""
}

// versionOf returns the version of a slice; "" without the slice.
func versionOf(s *apiserver.Server, name string) string {
	slice := apiserver.Get[*resourceapi.ResourceSlice](s, "", name)
	if slice == nil {
		return ""
	}
	return slice.ResourceVersion
}
