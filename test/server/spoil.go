// SPDX-License-Identifier: Apache-2.0

package server

import (
	"reflect"
	"strings"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
)

// Spoil modifies an object according to data, for fuzz tests of readers: to values that are too large,
// invalid or contradictory.
func Spoil(spec *v1alpha1.Spec, data []byte) {
	m := spoiler{data}
	for len(m.data) > 4 {
		m.spoil(reflect.ValueOf(spec).Elem())
	}
}

// spoiler changes values as bytes say.
type spoiler struct{ data []byte }

// below returns a number below n from the next bytes.
func (m *spoiler) below(n int) int {
	if len(m.data) < 2 || n < 2 {
		return 0
	}
	chosen := int(m.data[0]) | int(m.data[1])<<8
	m.data = m.data[2:]
	return chosen % n
}

func choose[T any](m *spoiler, of ...T) T { return of[m.below(len(of))] }

// spoil modifies one of the values inside a value.
func (m *spoiler) spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		m.spoil(v.Field(m.below(v.NumField())))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		m.spoil(v.Elem())
	case reflect.Slice:
		m.list(v)
	case reflect.Map:
		m.mapping(v)
	case reflect.String:
		v.SetString(choose(m, "", "0", "1-3", "0-7", "0-8191", "0-32767", "0-99999999999", "5,1", "-1", "x", "cpu",
			GPU, VF, "example.com/x", GPU+"/0", "gpu", "vf", "0000:12:00.0", "pci0000:00",
			"unknown",
			"pci0000:00"+strings.Repeat("/0000:00:01.0", 30), "none", "best-effort", "single-numa-node", "restricted",
			"pod", "static", "Static", "true", "memory", "hugepages-1Gi", "XGMI", strings.Repeat("0,", 1000)))
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int:
		v.SetInt(choose[int64](m, 0, 1, 2, 7, 8, 63, 64, 255, 1000, 16384, 32768, -1, 1<<31, 1<<60, -1<<63))
	case reflect.Uint64:
		v.SetUint(choose[uint64](m, 0, 1, 4096, 1<<30, 1<<40, 1<<62))
	}
}

func (m *spoiler) list(v reflect.Value) {
	switch n := v.Len(); {
	case n == 0 || m.below(4) == 0:
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
		m.spoil(v.Index(n))
	case m.below(4) == 0:
		v.Set(v.Slice(0, m.below(n)))
	case m.below(8) == 0:
		last := v.Index(n - 1)
		for range choose(m, 1, 7, 60, 300, 5000) {
			v.Set(reflect.Append(v, last))
		}
	default:
		m.spoil(v.Index(m.below(n)))
	}
}

func (m *spoiler) mapping(v reflect.Value) {
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	key := reflect.ValueOf(choose(m, "0", "1", "2", "5", "40", "x", GPU, VF, "memory",
		"hugepages-1Gi", "full-pcpus-only", "distribute-cpus-across-numa", "max-allowable-numa-nodes",
		"prefer-closest-numa-nodes"))
	value := reflect.New(v.Type().Elem()).Elem()
	if old := v.MapIndex(key); old.IsValid() {
		value.Set(old)
	}
	m.spoil(value)
	v.SetMapIndex(key, value)
}
