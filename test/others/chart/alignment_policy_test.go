// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	celenv "k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// enforcedLabel is the label of nodes that enforce the annotation tandem.dev/alignment.
const enforcedLabel = "tandem.dev/alignment-enforced"

// alignedPod is a pod with the annotation, unless that is "-", and with a spec.
func alignedPod(alignment, spec string) string {
	annotations := ""
	if alignment != "-" {
		annotations = ", annotations: {tandem.dev/alignment: " + alignment + "}"
	}
	return "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: team" + annotations + "}, " +
		"spec: {" + spec +
		"}}"
}

// TestAlignmentValues: the API server refuses a mistyped value when it is new.
func TestAlignmentValues(t *testing.T) {
	const typo, none = "set it to required or preferred", "-"
	for _, values := range []string{"", ofDRA} {
		policy := policyNamed(t, install(t, values), "-alignment")
		for _, c := range []struct{ before, after, want string }{
			{"", none, ""},
			{"", "required", ""},
			{"", "preferred", ""},
			{"", "requird", `the annotation tandem.dev/alignment is "requird"`},
			{"", "Required", typo},
			{"", "'required '", typo},
			{"", "''", ""},
			{"", "'true'", typo},
			{"", `"re\nquired"`, "has another value than required or preferred"},
			{none, "requird", typo},
			{"required", "requird", typo},
			{"requird", "'x'", typo},
			{"requird", "required", ""},
			{"requird", "requird", ""}, // the pod is older than the policy
			{"requird", none, ""},
		} {
			w := write{on("jane", ""), alignedPod(c.after, ""), ""}
			if c.before != "" {
				w.older = alignedPod(c.before, "")
			}
			expect(t, judge(t, policy, w), c.want, c.before+" -> "+c.after)
		}
	}
}

// TestAnnotationKeys: the API server warns of a key of Tandem's that nothing reads, when the key is new.
func TestAnnotationKeys(t *testing.T) {
	pod := func(annotations string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: team" + annotations + "}, spec: {}}"
	}
	for _, values := range []string{"", ofDRA} {
		policy := policyBound(t, install(t, values), "-alignment-keys", admissionv1.Warn)
		for _, c := range []struct{ before, after, want string }{
			{"", "", ""},
			{"", ", annotations: {}", ""},
			{"", ", annotations: {tandem.dev/alignment: required, tandem.dev/devices: a, x: z}", ""},
			{"", ", annotations: {tandem.dev/config: a}", ""},
			{"", ", annotations: {tandem.dev/align: required}", "annotations without effect: tandem.dev/align"},
			{"", ", annotations: {Tandem.dev/alignment: required}", "Tandem reads tandem.dev/alignment"},
			{"", ", annotations: {nottandem.dev/alignment: required}", ""},
			{", annotations: {tandem.dev/a: x}", ", annotations: {tandem.dev/a: z}", ""}, // as before
			{", annotations: {x: z}", ", annotations: {tandem.dev/a: z}", "tandem.dev/a"},
			{", annotations: {tandem.dev/a: x}", "", ""},
		} {
			w := write{on("jane", ""), pod(c.after), ""}
			if c.before != "" {
				w.older = pod(c.before)
			}
			expect(t, judge(t, policy, w), c.want, c.before+" -> "+c.after)
		}
	}
}

// terms is the required node affinity with terms.
func terms(terms ...string) string {
	return "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" +
		strings.Join(terms, ", ") + "]}}}"
}

// TestAlignmentNodes: a pod that requires alignment selects nodes that enforce it, or the API server says how
// to.
func TestAlignmentNodes(t *testing.T) {
	const refused = `add tandem.dev/alignment-enforced: "true" to the pod's nodeSelector`
	const enforced = "{matchExpressions: [{key: " + enforcedLabel + ", operator: In, values: ['true']}]}"
	const zone = "{matchExpressions: [{key: zone, operator: In, values: [a]}]}"
	const selects = "nodeSelector: {" + enforcedLabel + ": 'true'}"
	policy := policyNamed(t, install(t, "publish: [nfd]"), "-alignment-nodes")
	for _, c := range []struct{ alignment, spec, want string }{
		{"-", "", ""},
		{"preferred", "", ""},
		{"required", "", refused},
		{"required", selects, ""},
		{"required", "nodeSelector: {zone: a}", refused},
		{"required", "nodeSelector: {" + enforcedLabel + ": 'false'}", refused},
		{"required", terms(enforced), ""},
		{"required", terms(enforced, enforced), ""},
		{"required", terms(enforced, zone), refused}, // one of the terms is enough
		{"required", terms(zone), refused},
		{"required", terms("{matchFields: [{key: metadata.name, operator: In, values: [a]}]}"), refused},
		{"required", terms("{matchExpressions: [{key: " + enforcedLabel + ", operator: Exists}]}"), refused},
		{"required", terms("{matchExpressions: [{key: " + enforcedLabel + ", operator: NotIn, values: ['true']}]}"),
			refused},
		{"required", terms("{matchExpressions: [{key: " + enforcedLabel +
			", operator: In, values: ['true', 'false']}]}"), refused},
		{"required", "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, " +
			"preference: " + enforced + "}]}}", refused},
		{"required", "affinity: {podAntiAffinity: {}}", refused},
	} {
		pod := alignedPod(c.alignment, c.spec)
		expect(t, judge(t, policy, write{on("jane", ""), pod, ""}), c.want, pod)
		w := write{on("jane", ""), pod, alignedPod("preferred", c.spec)}
		expect(t, judge(t, policy, w), c.want, pod)
		w.older = pod
		expect(t, judge(t, policy, w), "", pod)
	}
}

func isMutating(o object) bool {
	kind, _ := o.at("kind").(string)
	return strings.HasPrefix(kind, "MutatingAdmissionPolicy")
}

// TestAlignmentBindsPods: the API server adds the label to a pod that requires alignment and says nothing of
// the label, which the other policy then lets pass.
func TestAlignmentBindsPods(t *testing.T) {
	objects := install(t, "publish: [nfd]")
	var policy admissionv1.MutatingAdmissionPolicy
	bound := false
	for _, o := range objects {
		switch o.at("kind") {
		case "MutatingAdmissionPolicy":
			policy = decode[admissionv1.MutatingAdmissionPolicy](t, o)
		case "MutatingAdmissionPolicyBinding":
			b := decode[admissionv1.MutatingAdmissionPolicyBinding](t, o)
			bound = b.Spec.PolicyName == b.Name && b.Spec.MatchResources == nil && b.Spec.ParamRef == nil
		}
	}
	if !bound || len(policy.Spec.Mutations) != 1 {
		t.Fatalf("bound is %t: %v", bound, policy)
	}
	validating := policyNamed(t, objects, "-alignment-nodes")
	for _, c := range []struct {
		alignment, spec string
		selector        map[string]string // afterwards
		refused         bool
	}{
		{"-", "", nil, false},
		{"preferred", "nodeSelector: {zone: a}", map[string]string{"zone": "a"}, false},
		{"required", "", map[string]string{enforcedLabel: "true"}, false},
		{"required", "nodeSelector: {zone: a}", map[string]string{"zone": "a", enforcedLabel: "true"}, false},
		{
			"required", "nodeSelector: {" + enforcedLabel + ": 'true'}",
			map[string]string{enforcedLabel: "true"}, false,
		},
		{
			"required", "nodeSelector: {" + enforcedLabel + ": 'false'}",
			map[string]string{enforcedLabel: "false"}, true,
		},
	} {
		var pod corev1.Pod
		ready(t, yaml.UnmarshalStrict([]byte(alignedPod(c.alignment, c.spec)), &pod))
		mutated := mutate(t, policy, &pod)
		if diff := cmp.Diff(c.selector, mutated.Spec.NodeSelector); diff != "" {
			t.Errorf("%s, %s: node selector (-want +got):\n%s", c.alignment, c.spec, diff)
		}
		after, err := yaml.Marshal(mutated)
		ready(t, err)
		reasons := judge(t, validating, write{on("jane", ""), string(after), ""})
		if (len(reasons) > 0) != c.refused {
			t.Errorf("%s, %s: refused by %q, want %t", c.alignment, c.spec, reasons, c.refused)
		}
	}
}

// mutate is what the API server of the oldest version with such policies does to a new pod.
func mutate(t *testing.T, policy admissionv1.MutatingAdmissionPolicy, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	interfaces := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(pod, nil, kind, pod.Namespace, pod.Name, resource, "",
			admission.Create, nil, false, on("jane", "")),
		VersionedObject: admission.NewLazyObject(pod), VersionedOldObject: admission.NewLazyObject(nil),
		VersionedKind: kind,
	}
	compiler, err := plugincel.NewCompositedCompiler(celenv.MustBaseEnvSet(mutating))
	ready(t, err)
	options := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	var conditions []plugincel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, options, celenv.NewExpressions),
		policy.Spec.FailurePolicy, "policy", "mutate", policy.Name)
	match := matcher.Match(t.Context(), attributes, nil, nil)
	if match.Error != nil {
		t.Fatal(match.Error)
	}
	if !match.Matches {
		return pod
	}
	options.HasPatchTypes = true
	patcher := patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(
		&patch.JSONPatchCondition{Expression: policy.Spec.Mutations[0].JSONPatch.Expression}, options,
		celenv.NewExpressions))
	mutated, err := patcher.Patch(t.Context(), patch.Request{
		MatchedResource: resource, VersionedAttributes: attributes, ObjectInterfaces: interfaces,
	}, celconfig.RuntimeCELCostBudget)
	ready(t, err)
	return mutated.(*corev1.Pod)
}
