// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	celenv "k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"

	drapool "github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/machines"
)

// classes are the device classes of the manifests, by name.
func classes(t *testing.T, objects []object) map[string]resourceapi.DeviceClass {
	t.Helper()
	all := map[string]resourceapi.DeviceClass{}
	for _, o := range objects {
		if o.at("kind") == "DeviceClass" {
			c := decode[resourceapi.DeviceClass](t, o)
			all[c.Name] = c
		}
	}
	return all
}

// build makes the pool of a recorded machine, with counters and taints or without.
func build(t *testing.T, machine string, vfsPerPF int, counters bool) drapool.Pool {
	t.Helper()
	sys, tree := machines.Read(t, machine, vfsPerPF)
	found, err := drapool.ReadMachine(sys, tree, nil)
	ready(t, err)
	return drapool.Build(found, drapool.Options{Counters: counters, Taints: counters})
}

// devices are those that a recorded machine publishes.
func devices(t *testing.T, machine string, vfsPerPF int, counters bool) (all []resourceapi.Device) {
	t.Helper()
	for _, s := range build(t, machine, vfsPerPF, counters).Slices {
		all = append(all, s.Devices...)
	}
	return all
}

// compilations are the expressions that were compiled.
var compilations = map[string]dracel.CompilationResult{}

// selects reports whether the scheduler takes a device for selectors. They have to compile within the API
// server's limits.
func selects(t *testing.T, selectors []resourceapi.DeviceSelector, driver string, d resourceapi.Device) bool {
	t.Helper()
	for _, s := range selectors {
		compiled, known := compilations[s.CEL.Expression]
		if !known {
			compiled = dracel.GetCompiler(dracel.Features{}).CompileCELExpression(s.CEL.Expression,
				dracel.Options{EnvType: ptr.To(celenv.NewExpressions)})
			compilations[s.CEL.Expression] = compiled
		}
		if compiled.Error != nil || compiled.MaxCost > resourceapi.CELSelectorExpressionMaxCost {
			t.Fatalf("%s: %v, cost %d", s.CEL.Expression, compiled.Error, compiled.MaxCost)
		}
		matches, _, err := compiled.DeviceMatches(t.Context(),
			dracel.Device{Driver: driver, Attributes: d.Attributes, Capacity: d.Capacity})
		if err != nil {
			t.Fatalf("%s of %s: %v", s.CEL.Expression, d.Name, err)
		}
		if !matches {
			return false
		}
	}
	return true
}

// TestClassesSelect: each class takes the types that it is for, of the resource that it is for; what other
// drivers publish none of them takes, and none fails on it.
func TestClassesSelect(t *testing.T) {
	const gpuOrPair = "gpu gpu-vf"
	types := map[string]string{
		"gpu.tandem.dev": gpuOrPair, "vf.tandem.dev": "vf", "pair.tandem.dev": "gpu-vf pair",
		"bundle.tandem.dev": "bundle", "amd.com-gpu.tandem.dev": gpuOrPair, "nvidia.com-gpu.tandem.dev": gpuOrPair,
		"tandem.dev-rdma-vf.tandem.dev": "vf",
	}
	objects := install(t, ofDRA)
	got, all := map[string]map[string]bool{}, classes(t, objects)
	for _, machine := range []string{"oci-mi300x-derived", "nv-h100-oci", "amd-mi300x-smc-thor2-cpx-derived"} {
		for _, d := range slices.Concat(devices(t, machine, 8, true), devices(t, machine, 1, true),
			devices(t, machine, 8, false)) {
			for name, class := range all {
				if selects(t, class.Spec.Selectors, "gpu.nvidia.com", resourceapi.Device{Name: d.Name}) {
					t.Errorf("%s takes what another driver publishes", name)
				}
				if !selects(t, class.Spec.Selectors, drapool.Driver, d) {
					continue
				}
				if got[name] == nil {
					got[name] = map[string]bool{}
				}
				got[name][*d.Attributes[drapool.AttributeType].StringValue] = true
				resource := *d.Attributes[drapool.AttributeResource].StringValue
				if offered := ptr.Deref(class.Spec.ExtendedResourceName, ""); strings.Count(name, ".") > 2 &&
					resource != offered {
					t.Errorf("%s, for %s, takes %s of %s", name, offered, d.Name, resource)
				}
			}
		}
	}
	for name, want := range types {
		if list := strings.Join(slices.Sorted(maps.Keys(got[name])), " "); list != want {
			t.Errorf("%s takes %q, want %q", name, list, want)
		}
	}
	if len(all) != len(types) {
		t.Errorf("the classes are %q", slices.Sorted(maps.Keys(all)))
	}
}

// TestClassesCost: the scheduler remembers ten expressions; one more, and all are compiled anew for each pod.
func TestClassesCost(t *testing.T) {
	const most = 10
	objects := install(t, ofDRA)
	expressions, names := map[string]bool{}, map[string]string{}
	add := func(selectors []resourceapi.DeviceSelector) {
		for _, s := range selectors {
			expressions[s.CEL.Expression] = true
		}
	}
	for name, class := range classes(t, objects) {
		add(class.Spec.Selectors)
		if resource := ptr.Deref(class.Spec.ExtendedResourceName, ""); resource != "" && names[resource] != "" {
			t.Errorf("%s and %s are both for %s: the scheduler takes one of them", name,
				names[resource], resource)
		} else {
			names[resource] = name
		}
	}
	for _, template := range claimTemplates(t, objects) {
		for _, r := range template.Spec.Spec.Devices.Requests {
			if r.Exactly != nil {
				add(r.Exactly.Selectors)
			}
		}
	}
	if len(expressions) > most {
		t.Errorf("%d expressions: %q", len(expressions), slices.Sorted(maps.Keys(expressions)))
	}
	for _, resource := range []string{
		drapool.PairResource, drapool.BundleResource, "amd.com/gpu", drapool.DefaultPool,
	} {
		if names[resource] == "" {
			t.Errorf("a pod that asks for %s gets nothing", resource)
		}
	}
}

func claimTemplates(t *testing.T, objects []object) map[string]resourceapi.ResourceClaimTemplate {
	t.Helper()
	all := map[string]resourceapi.ResourceClaimTemplate{}
	for _, o := range objects {
		if o.at("kind") == "ResourceClaimTemplate" {
			c := decode[resourceapi.ResourceClaimTemplate](t, o)
			all[c.Name] = c
		}
	}
	return all
}

// cpuClass is the class of kubernetes-sigs/dra-driver-cpu, which its chart installs.
const cpuClass = "dra.cpu"

// TestClaimTemplates: they ask for classes that there are and match attributes that are published, and the
// policy lets them pass.
func TestClaimTemplates(t *testing.T) {
	objects := install(t, ofDRA)
	all, known := claimTemplates(t, objects), classes(t, objects)
	policy := policyNamed(t, objects, "dra-counts")
	for name, template := range all {
		asked := template.Spec.Spec.Devices
		for _, r := range asked.Requests {
			names := []string{}
			if r.Exactly != nil {
				names = append(names, r.Exactly.DeviceClassName)
			}
			for _, alternative := range r.FirstAvailable {
				names = append(names, alternative.DeviceClassName)
			}
			for _, class := range names {
				if _, ok := known[class]; !ok && class != cpuClass {
					t.Errorf("%s asks for %s", name, class)
				}
			}
		}
		for _, c := range asked.Constraints {
			attribute := string(*cmp.Or(c.MatchAttribute, c.DistinctAttribute))
			own := resourceapi.QualifiedName(strings.TrimPrefix(attribute, drapool.Driver+"/"))
			for _, d := range devices(t, "oci-mi300x-derived", 8, true) {
				if _, ok := d.Attributes[own]; !ok && strings.HasPrefix(d.Name, "pair-") {
					t.Errorf("%s: %s has no attribute %s", name, d.Name, own)
				}
			}
		}
		w := write{on("jane", ""), text(objectNamed(objects, "ResourceClaimTemplate/"+name)), ""}
		expect(t, judge(t, policy, w), "", name)
	}
}
