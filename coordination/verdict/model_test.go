// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/devicemanager"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/coordination/publish"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/published"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// modelNode is what predictions read of a published node, without the places and holders of its devices.
type modelNode struct {
	Kubelet   model.Kubelet
	NUMANodes []model.NUMANode
	Alignment model.Alignment
	Resources []model.Resource // by name
}

// modelOf reads a published node as predictions do.
func modelOf(spec *v1alpha1.Spec) (n modelNode, err error) {
	n = modelNode{Kubelet: spec.Kubelet, NUMANodes: numaNodes(spec), Alignment: spec.Alignment}
	for i := range spec.Resources {
		r, err := readResource(&spec.Resources[i])
		if err != nil {
			return n, err
		}
		n.Resources = append(n.Resources, r)
	}
	devices := devicemanager.NewDevices(n.Resources)
	healthy, err := readHealthy(spec, devices)
	for i, r := range devices.Resources {
		for number := range r.Count {
			n.Resources[i].Devices[number].Healthy = healthy.Has(r.First + number)
		}
	}
	return n, err
}

// FuzzNode: what a node publishes is all that predictions read of it. The values are made by reflection, so
// that a new field of the model is in the test from the start.
func FuzzNode(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\x03a\x01\x07\x02", 60)))
	f.Fuzz(func(t *testing.T, seed []byte) {
		var n modelNode
		fill(reflect.ValueOf(&n).Elem(), &seed)
		for i := range n.Resources {
			n.Resources[i].Name = fmt.Sprintf("tandem.dev/%d", i) // in order, each once
		}
		text, err := json.Marshal(specOf(&n))
		if err != nil {
			t.Fatal(err)
		}
		var spec v1alpha1.Spec
		if err := json.Unmarshal(text, &spec); err != nil {
			t.Fatal(err)
		}
		read, err := modelOf(&spec)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(n, read, cmp.AllowUnexported(topology.NUMANode{})); diff != "" {
			t.Errorf("the node, and the same from its object:\n%s", diff)
		}
	})
}

// TestNodeHasEachField: the fuzzed values reach each field.
func TestNodeHasEachField(t *testing.T) {
	var n modelNode
	seed := []byte(strings.Repeat("\x03", 500))
	fill(reflect.ValueOf(&n).Elem(), &seed)
	text, err := json.Marshal(specOf(&n))
	if err != nil {
		t.Fatal(err)
	}
	var zero func(at string, v reflect.Value)
	zero = func(at string, v reflect.Value) {
		switch {
		case v.Type() == reflect.TypeFor[topology.NUMANode](), v.Type() == reflect.TypeFor[placement.Device](),
			v.Kind() == reflect.Bool:
		case v.Kind() == reflect.Struct:
			for field, value := range v.Fields() {
				zero(at+"."+field.Name, value)
			}
		case v.Kind() == reflect.Slice:
			zero(at, v.Index(0))
		case v.IsZero():
			t.Errorf("%s is empty in %s", at, text)
		}
	}
	zero("Node", reflect.ValueOf(n))
}

// specOf returns what a node publishes, without the places of its devices.
func specOf(n *modelNode) v1alpha1.Spec {
	f := publish.Facts{Tree: topology.Assemble(nil, nil, nil)}
	f.Spec.Kubelet, f.Spec.Alignment = n.Kubelet, n.Alignment
	var announced []published.Resource
	for _, node := range n.NUMANodes {
		f.NUMANodes = append(f.NUMANodes, v1alpha1.NUMANode{Number: node.Number, Distances: node.Distances})
	}
	for _, r := range n.Resources {
		of := published.Resource{Name: r.Name, Kind: device.Kind(kinds[r.Kind])}
		for number, d := range r.Devices {
			of.Devices = append(of.Devices, device.Device{
				ID: strconv.Itoa(number), NUMA: d.NUMA, Healthy: d.Healthy, // less than ten
			})
		}
		announced = append(announced, of)
	}
	f.Resources = published.Announce(announced...)
	return publish.BuildSpec(f, nil)
}

// fill fills a value from bytes, each of which decides one choice; without bytes it stays empty.
func fill(v reflect.Value, seed *[]byte) {
	next := func() int {
		if len(*seed) == 0 {
			return 0
		}
		b := (*seed)[0]
		*seed = (*seed)[1:]
		return int(b)
	}
	switch v.Interface().(type) {
	case topology.NUMANode:
		if b := next(); b < 64 {
			v.Set(reflect.ValueOf(topology.Node(b)))
		}
		return
	case placement.Device: // the places of devices are in the switches
		return
	case model.Kind:
		v.SetInt(int64(next() % len(model.Kinds)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, value := range v.Fields() {
			fill(value, seed)
		}
	case reflect.Bool:
		v.SetBool(next()%2 == 1)
	case reflect.Int:
		v.SetInt(int64(next()))
	case reflect.String:
		v.SetString(strings.Repeat("a", next()%4))
	case reflect.Slice:
		count := next() % 4
		if count == 0 && v.Type().Elem() != reflect.TypeFor[model.Device]() {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), count, count))
		for i := range count {
			fill(v.Index(i), seed)
		}
	case reflect.Map:
		if count := next() % 4; count > 0 {
			v.Set(reflect.ValueOf(map[string]string{"name": strings.Repeat("a", count)}))
		}
	default:
		panic("no values of " + v.Type().String())
	}
}
