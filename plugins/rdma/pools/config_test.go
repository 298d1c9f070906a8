// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/test/functions"
)

func resources(list ...string) string { return `{"resourceList": [` + strings.Join(list, ",") + `]}` }

func TestReadConfigErrors(t *testing.T) {
	t.Attr("parity", "sriov/resource-name")
	t.Attr("parity", "sriov/sel-isRdma")
	t.Attr("parity", "sriov/sel-auxTypes")
	long := strings.Repeat("x", 64)
	for _, c := range []struct{ name, content, want string }{
		{"empty", "", `the file is empty; want {"resourceList": [...]}`},
		{"not JSON", "resourceList:\n- resourceName: a\n",
			`not JSON: line 1: invalid character 'r' looking for beginning of value`},
		{"cut off", "{\n\"resourceList\": [", `not JSON: line 2: unexpected end of JSON input`},
		{"trailing garbage", resources(`{"resourceName": "a"}`) + "}",
			`not JSON: line 1: invalid character '}' after top-level value`},
		{"trailing comma", "{\n\"resourceList\": [\n{},\n]\n}",
			`not JSON: line 4: invalid character ']' looking for beginning of value`},
		{"list at the top", `[]`, `want an object, found array`},
		{"no list", `{}`, `resourceList is missing or empty`},
		{"empty list", resources(), `resourceList is missing or empty`},
		{"resourceList is an object", `{"resourceList": {}}`, `resourceList: want a list, found object`},
		{"resource is a string", resources(`"a"`), `resource 1 of resourceList: want an object, found string`},
		{"resource is null", resources(`{"resourceName": "a"}`, `null`),
			`resource 2 of resourceList: resourceName is missing`},
		{"misspelt list", `{"resourceLists": []}`,
			`resourceList is missing or empty; key "resourceLists" is unknown and ignored: want "resourceList"`},
		{"misspelt name", resources(`{"resourceNam": "a"}`), `resource 1 of resourceList: resourceName is missing; ` +
			`resource 1 of resourceList: key "resourceNam" is unknown and ignored: want "resourceName"`},
		{"no name", resources(`{"selectors": {}}`), `resource 1 of resourceList: resourceName is missing`},
		{"name is a number", resources(`{"resourceName": 5}`),
			`resource 1 of resourceList: resourceName: want a string, found number`},
		{"name with a slash", resources(`{"resourceName": "intel.com/a"}`),
			`resource "intel.com/a": resourceName may have letters, digits, - and _`},
		{"long name alone", resources(`{"resourceName": "` + long + `"}`),
			`no resource can be used: resource "` + long +
				`" is left out: resourceName has 64 characters; at most 63 are allowed`},
		{"twice", resources(`{"resourceName": "a", "resourcePrefix": "x.y"}`, `{"resourceName": "a"}`,
			`{"resourceName": "a", "resourcePrefix": "x.y"}`), `resource "a": resourceName is there twice`},
		{"unknown deviceType", resources(`{"resourceName": "a", "deviceType": "gpu"}`),
			`resource "a": deviceType "gpu" is unknown; want netDevice, accelerator or auxNetDevice`},
		{"deviceType is a list", resources(`{"resourceName": "a", "deviceType": []}`),
			`resource "a": deviceType: want a string, found array`},
		{"excludeTopology is a string", resources(`{"resourceName": "a", "excludeTopology": "yes"}`),
			`resource "a": excludeTopology: want true, false or "auto", found "yes"`},
		{"excludeTopology in capitals", resources(`{"resourceName": "a", "excludeTopology": "Auto"}`),
			`resource "a": excludeTopology: want true, false or "auto", found "Auto"`},
		{"excludeTopology is a number", resources(`{"resourceName": "a", "excludeTopology": 1}`),
			`resource "a": excludeTopology: want true, false or "auto", found number`},
		{"additionalInfo is a string", resources(`{"resourceName": "a", "additionalInfo": "x"}`),
			`resource "a": additionalInfo: want an object, found string`},
		{"additionalInfo holds a number",
			resources(`{"resourceName": "a", "additionalInfo": {"*": {"mtu": 9000}}}`),
			`resource "a": additionalInfo: want a string, found number`},
		{"isRdma and vdpaType",
			resources(`{"resourceName": "a", "selectors": {"isRdma": true, "vdpaType": "vhost"}}`),
			`resource "a": selectors: isRdma and vdpaType exclude each other`},
		{"auxNetDevice without auxTypes", resources(`{"resourceName": "a", "deviceType": "auxNetDevice"}`),
			`resource "a": selectors: auxTypes is missing, which deviceType auxNetDevice needs`},
		{"auxNetDevice of another type",
			resources(`{"resourceName": "a", "deviceType": "auxNetDevice", "selectors": {"auxTypes": ["eth"]}}`),
			`resource "a": selectors: auxTypes: "eth" is unknown; want sf`},
		{"nothing usable", resources(`{"resourceName": "a", "selectors": {"vendors": "15b3"}}`),
			`no resource can be used: resource "a" is left out: selectors: vendors: want a list, found string`},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ReadConfig(file)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff("read configuration "+file+": "+c.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadConfigOfNoFile(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"/nowhere/config.json", "read configuration /nowhere/config.json: no such file or directory"},
		{"/", "read configuration /: is a directory"},
	} {
		if _, err := ReadConfig(c.file); err == nil || err.Error() != c.want {
			t.Errorf("ReadConfig(%q) = %v; want %s", c.file, err, c.want)
		}
	}
}

// What takes one resource out leaves the others in, and what has no effect is said.
func TestConfigWarnings(t *testing.T) {
	t.Attr("parity", "sriov/config-json")
	good := `{"resourceName": "good"}`
	long := strings.Repeat("x", 64)
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"vendors is a string", resources(good, `{"resourceName": "a", "selectors": {"vendors": "15b3"}}`),
			[]string{`resource "a" is left out: selectors: vendors: want a list, found string`}},
		{"vendors holds a number", resources(good, `{"resourceName": "a", "selectors": {"vendors": [8086]}}`),
			[]string{`resource "a" is left out: selectors: vendors: want a string, found number`}},
		{"pfNames holds a number", resources(good, `{"resourceName": "a", "selectors": {"pfNames": [1]}}`),
			[]string{`resource "a" is left out: selectors: pfNames: want a string, found number`}},
		{"isRdma is a string", resources(good, `{"resourceName": "a", "selectors": [{}, {"isRdma": "true"}]}`),
			[]string{`resource "a" is left out: selectors: isRdma: want true or false, found string`}},
		{"selectors is a string", resources(good, `{"resourceName": "a", "selectors": "all"}`),
			[]string{`resource "a" is left out: selectors: want an object, found string`}},
		{"selectors is empty", resources(good, `{"resourceName": "a", "selectors": []}`),
			[]string{`resource "a" is left out: selectors: the list is empty`}},
		{"selectors holds null", resources(good, `{"resourceName": "a", "selectors": [null]}`),
			[]string{`resource "a" is left out: selectors: the list contains null`}},
		{"long name", resources(good, `{"resourceName": "`+long+`"}`),
			[]string{`resource "` + long + `" is left out: resourceName has 64 characters; at most 63 are allowed`}},
		{"name with a dash at the end", resources(good, `{"resourceName": "a-"}`),
			[]string{`resource "a-" is left out: resourceName may have - and _, but not at its ends`}},
		{"prefix with capitals", resources(good, `{"resourceName": "a", "resourcePrefix": "Intel.com"}`),
			[]string{
				`resource "a" is left out: resourcePrefix "Intel.com" is not a lower-case domain name such as intel.com`,
			}},
		{"long prefix beside the longest names", resources(
			`{"resourceName": "`+strings.Repeat("x", MaxName)+`", "resourcePrefix": "`+strings.Repeat("a", maxPrefix)+`"}`,
			`{"resourceName": "a", "resourcePrefix": "`+strings.Repeat("a", maxPrefix+1)+`"}`),
			[]string{`resource "a" is left out: resourcePrefix has 245 characters; at most 244 are allowed`}},
		{"empty range", resources(`{"resourceName": "a", "selectors": {"pfNames": ["ens1#7-3"]}}`),
			[]string{`resource "a": selectors: pfNames: "ens1#7-3": range "7-3" is empty`}},
		{"no index", resources(`{"resourceName": "a", "selectors": {"rootDevices": ["0000:81:00.0#0-x"]}}`),
			[]string{
				`resource "a": selectors: rootDevices: "0000:81:00.0#0-x": "0-x" is neither a VF index nor a range such as 0-3`,
			}},
		{"two separators", resources(`{"resourceName": "a", "selectors": {"pfNames": ["ens1#0#1"]}}`),
			[]string{`resource "a": selectors: pfNames: "ens1#0#1": more than one #`}},
		{"no PF", resources(`{"resourceName": "a", "selectors": {"pfNames": ["#0"]}}`),
			[]string{`resource "a": selectors: pfNames: "#0": no PF before #`}},
		{"two link types", resources(`{"resourceName": "a", "selectors": {"linkTypes": ["ether", "infiniband"]}}`),
			[]string{`resource "a": selectors: linkTypes should have a single value`}},
		{"vdpaType", resources(`{"resourceName": "a", "selectors": {"vdpaType": "kernel"}}`),
			[]string{
				`resource "a": selectors: vdpaType: no device can have the value "kernel": want virtio or vhost`,
			}},
		{"addresses of sub-functions",
			resources(`{"resourceName": "a", "deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"], "pciAddresses": ["0000:81:00.0"]}}`),
			[]string{
				`resource "a": selectors: key "pciAddresses" is unknown for deviceType auxNetDevice and ignored`,
			}},
		{"auxTypes of VFs", resources(`{"resourceName": "a", "selectors": {"auxTypes": ["sf"]}}`),
			[]string{`resource "a": selectors: key "auxTypes" is unknown for deviceType netDevice and ignored`}},
		{"tandem is a list", resources(`{"resourceName": "a", "tandem": []}`),
			[]string{`resource "a": tandem is left out: want an object, found array`}},
		{"pairs is a string", resources(`{"resourceName": "a", "tandem": {"alias": true, "pairs": "yes"}}`),
			[]string{`resource "a": tandem is left out: pairs: want true or false, found string`}},
		{"checkHealthOnPf is a string", resources(`{"resourceName": "a", "checkHealthOnPf": "yes"}`),
			[]string{`resource "a": health is not checked: checkHealthOnPf: want true or false, found string`}},
		{"unknown variable",
			resources(`{"resourceName": "a", "tandem": {"pair": true, "variables": ["NCCL_HCA"]}}`), []string{
				`resource "a": tandem: key "pair" is unknown and ignored: want "pairs"`,
				`resource "a": tandem: variables: "NCCL_HCA" is unknown and left out; want some of NCCL_IB_HCA, NVSHMEM_HCA_LIST, UCX_NET_DEVICES, VLLM_GPU_NIC_PCIE_MAPPING, VLLM_NIC_SELECTION_VARS`,
			}},
		{"unknown keys",
			`{"version": 1, "resourceList": [{"resourceName": "a", "pfNames": [], "selectors": {"pfName": [], "vendor": []}}]}`,
			[]string{
				`key "version" is unknown and ignored`,
				`resource "a": key "pfNames" is unknown and ignored: put it into selectors`,
				`resource "a": selectors: key "pfName" is unknown for deviceType netDevice and ignored: want "pfNames"`,
				`resource "a": selectors: key "vendor" is unknown for deviceType netDevice and ignored: want "vendors"`,
			}},
		{"pfNames of an accelerator",
			resources(`{"resourceName": "a", "deviceType": "accelerator", "selectors": {"pfNames": ["x"]}}`),
			[]string{`resource "a": selectors: key "pfNames" is unknown for deviceType accelerator and ignored`}},
		{"case does not matter",
			`{"ResourceList": [{"ResourceName": "a", "DEVICETYPE": "netDevice", "Selectors": {"IsRdma": true, "PFNames": ["x"]}}]}`,
			nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			parsed := config(t, c.text)
			if len(parsed.Resources) != 1 {
				t.Errorf("%d resources; want 1", len(parsed.Resources))
			}
			if diff := cmp.Diff(c.want, parsed.Warnings); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The SR-IOV network operator writes "IsRdma", and selectors as an object; hand-made files have lists too.
func TestConfigOfOperator(t *testing.T) {
	t.Attr("parity", "sriov/config-json")
	c := config(t,
		`{"resourceList":[{"resourceName":"mlnxnics","selectors":{"vendors":["15b3"],"pfNames":["ens803f0#0-4"],"linkTypes":["ether"],"IsRdma":true,"NeedVhostNet":true},"SelectorObjs":null}]}`)
	s := c.Resources[0].Selectors[0]
	if !s.IsRDMA || !s.NeedVhostNet || len(s.PFNames) != 1 || !s.PFNames[0].hasIndex(4) ||
		s.PFNames[0].hasIndex(5) {
		t.Errorf("read %+v", s)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, seed := range []string{
		resources(`{"resourceName": "a", "selectors": [{"pfNames": ["x#0-3,7"]}, {"isRdma": true}]}`),
		resources(`{"resourceName": "a", "deviceType": "accelerator", "additionalInfo": {"*": {"k": "v"}}}`),
		`{"resourceList": [null]}`,
		sharing(`{"resourceName": "a", "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"], "linkTypes": ["ether"]}}`),
		`{"periodicUpdateInterval": 0, "configList": [{"resourceName": "a", "devices": ["ib0"]}], "resourceList": []}`,
		`[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := parseConfig("config.json", content)
		if (c == nil) == (err == nil) {
			t.Fatalf("configuration %v, error %v", c, err)
		}
		if err != nil {
			return
		}
		for _, r := range c.Resources {
			if r.Name == "" || len(r.Selectors) == 0 || r.DeviceType == "" {
				t.Errorf("incomplete resource %+v", r)
			}
		}
	})
}

// The key is that of the stock plugin, in any case and with null for nothing; "auto" is Tandem's. Without the
// key the node decides, which is not the same as false.
func TestExclusionIsRead(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]exclusion{
		`"excludeTopology": true`: Always, `"excludeTopology": false`: Never, `"excludeTopology": null`: Auto,
		`"excludetopology": true`: Always, `"EXCLUDETOPOLOGY": "auto"`: Auto, `"excludeTopology": "auto"`: Auto,
		`"excludeTopology": "auto", "excludeTopology": false`: Never,
		`"excludeTopology": true, "excludeTopology": null`:    Always, `"prefix": ""`: Auto,
	} {
		for _, text := range []string{
			resources(`{"resourceName": "a", ` + value + `}`),
			sharing(`{"resourceName": "a", "rdmaHcaMax": 1, "devices": ["ib0"], ` + value + `}`),
		} {
			if got := config(t, text).Resources[0].ExcludeTopology; got != want {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
		}
	}
}

// TestDecided: a pool without hints has no NUMA nodes.
func TestDecided(t *testing.T) {
	t.Parallel()
	s := functions.New()
	s.Write("devices/system/node/online", "0-1")
	s.PF(0x81, "ens1", 3, functions.Facts{"numa_node": "1"})
	s.PF(0x01, "ens2", 3, functions.Facts{"numa_node": "0"})
	pool := func(name, vfs, exclude string) string {
		return fmt.Sprintf(`{"resourceName": %q, %s "selectors": {"pfNames": ["ens1#%s", "ens2#%[3]s"]}}`, name, exclude, vfs)
	}
	found, err := poolsOf(s.FS(), config(t, resources(pool("auto", "0", ""))), "intel.com")
	if err != nil {
		t.Fatal(err)
	}
	for _, hints := range []bool{true, false} {
		pool := found[0].Decided(Decision{Hints: hints, Why: "of a test"})
		for _, d := range pool.Devices {
			if _, known := d.NUMA.Number(); known != hints {
				t.Errorf("hints %t: %s has NUMA node %v", hints, d.ID, d.NUMA)
			}
		}
		if want := "excludeTopology auto: NUMA hints, because of a test"; hints && pool.Decision != want {
			t.Errorf("decision %q, want %q", pool.Decision, want)
		}
	}
	if _, known := found[0].Devices[0].NUMA.Number(); !known {
		t.Error("a decision has changed the pool as found")
	}
}
