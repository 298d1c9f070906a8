// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// load loads what arguments, variables and a file say together.
func load(t *testing.T, args []string, env map[string]string, file string) (Config, error) {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags := Register(set)
	if file != "" {
		args = append(args, "--config-file="+write(t, file))
	}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags.Load(func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	})
}

// TestEverySetting sets every setting in the three ways it can be set, each of them stronger than the next.
func TestEverySetting(t *testing.T) {
	t.Attr("parity", "nvidia/flags-env")
	t.Attr("parity", "nvidia/config-v1")
	for _, c := range []struct {
		flags, env            []string
		key                   string // "" for none in the file
		preset                any
		flag, variable, infil string // three values
		want                  [3]any
		get                   func(Config) any
	}{
		{[]string{"mig-strategy"}, []string{"MIG_STRATEGY"}, "flags.migStrategy",
			"none", "single", "mixed", "none",
			[3]any{"single", "mixed", "none"}, func(c Config) any { return c.MIGStrategy }},
		{[]string{"fail-on-init-error"}, []string{"FAIL_ON_INIT_ERROR"}, "flags.failOnInitError",
			false, "true", "false", "true",
			[3]any{true, false, true}, func(c Config) any { return c.FailOnInitError }},
		{[]string{"xid-recovery"}, []string{"XID_RECOVERY"}, "",
			false, "true", "true", "",
			[3]any{true, true, false}, func(c Config) any { return c.XidRecovery }},
		{[]string{"driver-root", "nvidia-driver-root"}, []string{"NVIDIA_DRIVER_ROOT"}, "flags.nvidiaDriverRoot",
			"/", "/a", "/b", "/c",
			[3]any{"/a", "/b", "/c"}, func(c Config) any { return c.DriverRoot }},
		{[]string{"dev-root", "nvidia-dev-root"}, []string{"NVIDIA_DEV_ROOT"}, "flags.nvidiaDevRoot",
			"/", "/a", "/b", "/c",
			[3]any{"/a", "/b", "/c"}, func(c Config) any { return c.HostDevRoot }},
		{[]string{"pass-device-specs"}, []string{"PASS_DEVICE_SPECS"}, "flags.plugin.passDeviceSpecs",
			false, "true", "false", "true",
			[3]any{true, false, true}, func(c Config) any { return c.PassDeviceSpecs }},
		{[]string{"device-list-strategy"}, []string{"DEVICE_LIST_STRATEGY"}, "flags.plugin.deviceListStrategy",
			"[envvar]", "cdi-cri,volume-mounts", "envvar, cdi-cri", "volume-mounts",
			[3]any{"[cdi-cri volume-mounts]", "[envvar cdi-cri]", "[volume-mounts]"},
			func(c Config) any { return fmt.Sprint(c.DeviceList) }},
		{[]string{"device-id-strategy"}, []string{"DEVICE_ID_STRATEGY"}, "flags.plugin.deviceIDStrategy",
			"uuid", "index", "uuid", "index",
			[3]any{"index", "uuid", "index"}, func(c Config) any { return c.DeviceID }},
		{[]string{"gdrcopy-enabled"}, []string{"GDRCOPY_ENABLED"}, "flags.gdrcopyEnabled",
			false, "true", "false", "true",
			[3]any{true, false, true}, func(c Config) any { return c.GDRCopy }},
		{[]string{"gds-enabled"}, []string{"GDS_ENABLED"}, "flags.gdsEnabled",
			false, "true", "", "true",
			[3]any{true, false, true}, func(c Config) any { return c.GDS }},
		{[]string{"mofed-enabled"}, []string{"MOFED_ENABLED"}, "flags.mofedEnabled",
			false, "1", "0", "true",
			[3]any{true, false, true}, func(c Config) any { return c.MOFED }},
		{[]string{"cdi-annotation-prefix"}, []string{"CDI_ANNOTATION_PREFIX"}, "flags.plugin.cdiAnnotationPrefix",
			"cdi.k8s.io/", "a/", "b/", "c/",
			[3]any{"a/", "b/", "c/"}, func(c Config) any { return c.AnnotationPrefix }},
		{[]string{"nvidia-cdi-hook-path", "nvidia-ctk-path"}, []string{"NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"},
			"flags.plugin.nvidiaCTKPath", "/usr/bin/nvidia-ctk", "/a", "/b", "/c",
			[3]any{"/a", "/b", "/c"}, func(c Config) any { return c.CDIHook }},
		{[]string{"driver-root-ctr-path", "container-driver-root"},
			[]string{"DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"}, "flags.plugin.containerDriverRoot",
			"/driver-root", "/a", "/b", "/c",
			[3]any{"/a", "/b", "/c"}, func(c Config) any { return c.ContainerDriverRoot }},
		{[]string{"mps-root"}, []string{"MPS_ROOT"}, "flags.mpsRoot",
			nil, "/a", "/b", "/c",
			[3]any{nil, nil, nil}, func(Config) any { return nil }},
		{[]string{"shared-devices-allocation-policy"}, []string{"SHARED_DEVICES_ALLOCATION_POLICY"},
			"flags.plugin.sharedDevicesAllocationPolicy", "distributed", "packed", "distributed", "packed",
			[3]any{"packed", "distributed", "packed"}, func(c Config) any { return c.SharedPolicy }},
		{[]string{"device-discovery-strategy"}, []string{"DEVICE_DISCOVERY_STRATEGY"},
			"flags.deviceDiscoveryStrategy", "auto", "nvml", "auto", "nvml",
			[3]any{"nvml", "auto", "nvml"}, func(c Config) any { return c.Discovery }},
		{[]string{"imex-channel-ids"}, []string{"IMEX_CHANNEL_IDS"}, "imex.channelIDs",
			"[]", "0", "", "[0]",
			[3]any{"[0]", "[]", "[0]"}, func(c Config) any { return fmt.Sprint(c.IMEXChannels) }},
		{[]string{"imex-required"}, []string{"IMEX_REQUIRED"}, "imex.required",
			false, "true", "false", "true",
			[3]any{true, false, true}, func(c Config) any { return c.IMEXRequired }},
		{[]string{"kubelet-socket"}, []string{"KUBELET_SOCKET"}, "",
			"/var/lib/kubelet/device-plugins/kubelet.sock", "/a/device-plugins/kubelet.sock", "", "",
			[3]any{"/a/device-plugins/kubelet.sock", "", nil}, func(c Config) any { return c.KubeletSocket }},
		{[]string{"cdi-feature-flags"}, []string{"CDI_FEATURE_FLAGS"}, "",
			"[]", "a,b", "c", "",
			[3]any{"[a b]", "[c]", nil}, func(c Config) any { return fmt.Sprint(c.CDIFeatures) }},
		{[]string{"cdi-disable-hooks"}, []string{"CDI_DISABLE_HOOKS"}, "",
			"[]", "a,b", "all", "",
			[3]any{"[a b]", "[all]", nil}, func(c Config) any { return fmt.Sprint(c.CDIDisabledHooks) }},
	} {
		t.Run(c.flags[0], func(t *testing.T) {
			check := func(how string, args []string, env map[string]string, file string, want any) {
				t.Helper()
				config, err := load(t, args, env, file)
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				if got := c.get(config); got != want {
					t.Errorf("%s: %v, want %v", how, got, want)
				}
			}
			file := ""
			if c.key != "" {
				file = nested(c.key, c.infil)
				check("file", nil, nil, file, c.want[2])
			}
			check("nobody", nil, nil, "", c.preset)
			for _, variable := range c.env {
				check(variable, nil, map[string]string{variable: c.variable}, file, c.want[1])
			}
			for _, flag := range c.flags {
				check("--"+flag, []string{"--" + flag + "=" + c.flag}, map[string]string{c.env[0]: c.variable}, file,
					c.want[0])
			}
		})
	}
	if got := len(allSettings()); got != 23 { // and config-file, which every test above uses
		t.Errorf("there are %d settings", got)
	}
}

// TestRepeatedFlags: a list has the values of all its flags, any other setting that of the last one.
func TestRepeatedFlags(t *testing.T) {
	c, err := load(t, []string{
		"--device-list-strategy=envvar", "--device-list-strategy=cdi-cri", "--mig-strategy=single",
		"--mig-strategy=mixed",
	}, nil, "")
	if err != nil || !slices.Equal(c.DeviceList, []string{"envvar", "cdi-cri"}) || c.MIGStrategy != "mixed" {
		t.Errorf("got %v and %s, %v", c.DeviceList, c.MIGStrategy, err)
	}
}

// TestLogOfSettings: the log has each value as a flag would have it, with its source.
func TestLogOfSettings(t *testing.T) {
	for file, part := range map[string]string{
		"imex: {channelIDs: [0]}":           "imex-channel-ids=0 (imex.channelIDs of ",
		"flags: {nvidiaDriverRoot: '/[a]'}": "driver-root=/[a] (flags.nvidiaDriverRoot of ",
		"flags: {plugin: {deviceListStrategy: [envvar, cdi-cri]}}": "device-list-strategy=envvar,cdi-cri " +
			"(flags.plugin.deviceListStrategy of ",
	} {
		config, err := load(t, nil, nil, file)
		if got := config.LogValue().String(); err != nil || !strings.Contains(got, part) {
			t.Errorf("%s: %s, %v, want %s", file, got, err, part)
		}
	}
}

// nested writes a.b.c and a value as a file does, {a: {b: {c: value}}}.
func nested(key, value string) string {
	for _, part := range slices.Backward(strings.Split(key, ".")) {
		value = "{" + part + ": " + value + "}"
	}
	return value
}

func TestFiles(t *testing.T) {
	t.Attr("parity", "nvidia/config-v1")
	t.Attr("parity", "nvidia/shared-rename")
	sharing := func(text string) string { return "sharing: {timeSlicing: {" + text + "}}" }
	for _, c := range []struct {
		name, file string
		want       string   // what Sharing is
		warnings   []string // parts, one each
		err        []string // parts
	}{
		{name: "empty", want: "{map[] false false}", file: "{}"},
		{name: "JSON",
			file: `{"version": "v1", "sharing": {"timeSlicing": {"failRequestsGreaterThanOne": true, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}`,
			want: "{map[nvidia.com/gpu:4] false true}"},
		{name: "lists", file: "flags: {plugin: {deviceListStrategy: [envvar, cdi-cri]}}",
			want: "{map[] false false}"},
		{name: "other programs' keys",
			file: "flags: {useNodeFeatureAPI: true, gfd: {oneshot: false, sleepInterval: 60s}}\nfuture: 1",
			want: "{map[] false false}"},
		{name: "other letters", file: "Flags: {MigStrategy: none}", want: "{map[] false false}"},
		{name: "renamed",
			file: sharing("renameByDefault: true, resources: [{name: gpu, rename: gpu.shared, " +
				"replicas: 2, devices: all}]"), want: "{map[nvidia.com/gpu:2] true false}"},
		{name: "own names",
			file: sharing("resources: [{name: gpu, rename: part, replicas: 2}, {name: mig-1g.10gb, " +
				"replicas: 3, rename: half}]"), want: "{map[nvidia.com/gpu:2 nvidia.com/mig-1g.10gb:3] false false}",
			warnings: []string{"rename"}},
		{name: "some devices",
			file: sharing("resources: [{name: gpu, replicas: 2, devices: [0, \"1:0\", " +
				"GPU-b1028956-cfa2-0990-bf4a-5da9abb51763]}]"), want: "{map[nvidia.com/gpu:2] false false}",
			warnings: []string{"devices"}},
		{name: "resources", file: "resources: {gpus: [{pattern: '*', name: nvidia.com/mine}]}",
			want: "{map[] false false}", warnings: []string{"resources is not supported"}},
		{name: "version", file: "version: v2", err: []string{`version is "v2"`, "want v1"}},
		{name: "no YAML", file: "flags: [", err: []string{"read the configuration", "config.yaml"}},
		{name: "type", file: "flags: {failOnInitError: maybe}", err: []string{"failOnInitError"}},
		{name: "list type", file: "flags: {plugin: {deviceListStrategy: 3}}",
			err: []string{"neither a string nor a list"}},
		{name: "no strategy", file: "flags: {plugin: {deviceListStrategy: []}}", want: "{map[] false false}",
			warnings: []string{"is empty: containers are not told"}},
		{name: "no strategies, said so",
			file: "flags: {plugin: {deviceListStrategy: null, deviceIDStrategy: null}, failOnInitError: null}",
			want: "{map[] false false}"},
		{name: "empty strategy", file: "flags: {plugin: {deviceListStrategy: ''}}",
			err: []string{`deviceListStrategy of`, `is ""`}},
		{name: "one string of two", file: "flags: {plugin: {deviceListStrategy: 'envvar,cdi-cri'}}",
			err: []string{`"envvar,cdi-cri"`}},
		{name: "no resources", file: sharing("renameByDefault: true"),
			err: []string{"sharing.timeSlicing.resources is empty"}},
		{name: "no name", file: sharing("resources: [{replicas: 2}]"), err: []string{"resources[0].name"}},
		{name: "bad name", file: sharing("resources: [{name: gpu}, {name: GPU, replicas: 2}]"),
			err: []string{"replicas of nvidia.com/gpu"}},
		{name: "worse name", file: sharing("resources: [{name: GPU, replicas: 2}]"),
			err: []string{`"GPU" is not a name`}},
		{name: "long name", file: sharing("resources: [{name: " + strings.Repeat("a", 60) + ", replicas: 2}]"),
			err: []string{"more than 63"}},
		{name: "one replica", file: sharing("resources: [{name: gpu, replicas: 1}]"),
			err: []string{"replicas of nvidia.com/gpu has to be 2 or more"}},
		{name: "devices", file: sharing("resources: [{name: gpu, replicas: 2, devices: some}]"),
			err: []string{`"some" is not`}},
		{name: "devices list", file: sharing("resources: [{name: gpu, replicas: 2, devices: [first]}]"),
			err: []string{"first is no index"}},
		{name: "no devices", file: sharing("resources: [{name: gpu, replicas: 2, devices: 0}]"),
			err: []string{"0 is not"}},
		{name: "MPS", file: "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}",
			err: []string{"sharing.mps"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, err := load(t, nil, nil, c.file)
			for _, part := range c.err {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v lacks %q", err, part)
				}
			}
			if c.err != nil {
				return
			}
			if got := fmt.Sprint(config.Sharing); err != nil || got != c.want {
				t.Errorf("%s, %v, want %s", got, err, c.want)
			}
			for i, part := range c.warnings {
				if len(config.Warnings) != len(c.warnings) || !strings.Contains(config.Warnings[i], part) {
					t.Errorf("warnings %q, want %q", config.Warnings, c.warnings)
				}
			}
		})
	}
}

func TestMOFEDWarning(t *testing.T) {
	t.Attr("parity", "nvidia/mofed-warning")
	config, err := load(t, nil, map[string]string{"MOFED_ENABLED": "true"}, "")
	if err != nil || len(config.Warnings) != 1 {
		t.Fatalf("%v, %v", config.Warnings, err)
	}
	for _, part := range []string{"MOFED_ENABLED", "uverbs", "tandem-rdma"} {
		if !strings.Contains(config.Warnings[0], part) {
			t.Errorf("%q lacks %q", config.Warnings[0], part)
		}
	}
}

func TestIgnoredXids(t *testing.T) {
	t.Attr("parity", "nvidia/health-env")
	for _, c := range []struct {
		disable, enable string
		ignored, heeded []uint64
		off             bool
	}{
		{"", "", []uint64{13, 31, 43, 45, 68, 109}, []uint64{48, 79, 94}, false},
		{"79, 48", "", []uint64{13, 48, 79}, []uint64{94}, false},
		{"all", "", []uint64{13, 48, 79}, nil, true},
		{"XIDS", "", []uint64{79}, nil, true},
		{"all", "79,31", []uint64{48, 13}, []uint64{79, 31}, false},
		{"48", "all", nil, []uint64{13, 48, 79}, false},
		{"48,many", "48", []uint64{13}, []uint64{48, 79}, false},
	} {
		config, err := load(t, nil,
			map[string]string{"DP_DISABLE_HEALTHCHECKS": c.disable, "DP_ENABLE_HEALTHCHECKS": c.enable}, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, xid := range c.ignored {
			if !config.Xids.Ignores(xid) {
				t.Errorf("disable %q, enable %q: %d is heeded", c.disable, c.enable, xid)
			}
		}
		for _, xid := range c.heeded {
			if config.Xids.Ignores(xid) {
				t.Errorf("disable %q, enable %q: %d is ignored", c.disable, c.enable, xid)
			}
		}
		if config.Xids.Off() != c.off || (len(config.Warnings) > 0) != strings.Contains(c.disable, "many") {
			t.Errorf("disable %q, enable %q: off %t, warnings %q", c.disable, c.enable, config.Xids.Off(),
				config.Warnings)
		}
	}
}

// TestMixedWithVariable: the kubelet keeps one value of NVIDIA_VISIBLE_DEVICES, so that MIG devices of two
// resources need another strategy.
func TestMixedWithVariable(t *testing.T) {
	for list, warned := range map[string]bool{
		"": true, "envvar": true, "volume-mounts": false, "cdi-cri": false,
	} {
		args := []string{"--mig-strategy=mixed"}
		if list != "" {
			args = append(args, "--device-list-strategy="+list)
		}
		config, err := load(t, args, nil, "")
		if text := strings.Join(config.Warnings, ""); err != nil ||
			strings.Contains(text, "NVIDIA_VISIBLE_DEVICES") != warned {
			t.Errorf("%q: warnings %q, %v", list, text, err)
		}
	}
}
