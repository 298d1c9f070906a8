// SPDX-License-Identifier: Apache-2.0

package qualify

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
)

// secret is in each text of the evidence that does not have to be known.
const secret = "secret-team-host"

// fill sets all texts of a value, and makes each list and map one element long.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(secret)
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem())
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				fill(v.Field(i))
			}
		}
	}
}

// TestNothingPrivate: of texts of the daemons, of doctor and of verify, only words with a known meaning get
// into a report.
func TestNothingPrivate(t *testing.T) {
	t.Parallel()
	e := good(t, "nv-h100-oci")
	known := *e.Verified[0]
	pair, measured := known.Pairs[0], known.Traffic.Pairs[0]

	finding, status, choice := doctor.Finding{}, coordinator.Status{}, pools.Choice{}
	for _, v := range []any{&finding, &status, &choice, &known} {
		fill(reflect.ValueOf(v).Elem())
	}
	finding.ID, finding.Severity = "refused-pods", doctor.Warning
	status.Mode, status.Resources[0].Kind = "device-plugin", "gpu"
	device := &status.Resources[0].Devices[0]
	device.Address, device.Health = measured.GPU, "degraded"
	choice.Reasons[0].Key = "pfNames"
	known.Pairs[0].GPU, known.Pairs[0].VF, known.Pairs[0].Distance = pair.GPU, pair.VF, pair.Distance
	known.Traffic.Pairs[0].GPU, known.Traffic.Pairs[0].VF = pair.GPU, pair.VF
	known.Traffic.Direction = "to the pairs of " + secret

	e.Findings, e.Status = []doctor.Finding{finding}, &status
	e.Choices, e.Verified = []pools.Choice{choice}, []*verify.Verification{&known}
	text := written(t, report(t, e))
	if strings.Contains(text, secret) {
		t.Error(regexp.MustCompile(`.*`+secret+`.*`).FindAllString(text, -1))
	}
	for _, word := range []string{"refused-pods", "degraded", "pfNames", "another container"} {
		if !strings.Contains(text, word) {
			t.Errorf("the report lacks %s", word)
		}
	}
}

// TestUnknownWords: a word of a daemon without a known meaning is left out too.
func TestUnknownWords(t *testing.T) {
	t.Parallel()
	e := good(t, "nv-h100-oci")
	for i := range e.Status.Resources {
		for k := range e.Status.Resources[i].Devices {
			e.Status.Resources[i].Devices[k].Health = secret
		}
	}
	e.Status.Mode = secret
	e.Status.Resources[1].Kind = secret
	e.Verified[0].Traffic.Direction = secret
	if text := written(t, report(t, e)); strings.Contains(text, secret) {
		t.Error(regexp.MustCompile(`.*`+secret+`.*`).FindAllString(text, -1))
	}
}

// TestSystem: of versions only the numbers are read, and of names only printable characters of the first
// line.
func TestSystem(t *testing.T) {
	t.Parallel()
	sys, proc := t.TempDir(), t.TempDir()
	full := strings.Repeat("x", longest)
	for name, content := range map[string]string{
		filepath.Join(sys, "class/dmi/id/sys_vendor"):     full + secret + "\n",
		filepath.Join(sys, "class/dmi/id/product_name"):   "AS \x1b[31m-\u200f8125GSé \nserial 17\n",
		filepath.Join(sys, "class/dmi/id/product_serial"): secret,
		filepath.Join(sys, "module/amdgpu/version"):       "6.10.5\n",
		filepath.Join(proc, "sys/kernel/osrelease"):       "6.8.0-45-" + secret + "\n",
		filepath.Join(proc, "driver/nvidia/version"): "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " +
			"580.65.06  Release Build  (" + secret + ")\nGCC version:  gcc version 12.3.0\n",
	} {
		ready(t, os.MkdirAll(filepath.Dir(name), 0o755))
		ready(t, os.WriteFile(name, []byte(content), 0o644))
	}
	got := readSystem(sys, proc)
	got.Architecture = ""
	want := nodeSystem{
		Vendor: full, Product: "AS [31m-8125GS", Kernel: "6.8.0", NVIDIA: "580.65.06", AMD: "6.10.5",
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if empty := readSystem(t.TempDir(), t.TempDir()); empty.Kernel != "" || empty.Architecture == "" {
		t.Errorf("%+v", empty)
	}
}
