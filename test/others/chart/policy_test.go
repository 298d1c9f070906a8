// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	celenv "k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// ofDRA are the values of mode dra with templates for claims. TestKustomizations compares the objects with
// those of deployments/dra.
const ofDRA = "{mode: dra, dra: {claimTemplates: {namespaces: [team]}}}"

// decode reads a manifest strictly as an object of Kubernetes.
func decode[T any](t *testing.T, o object) T {
	t.Helper()
	content, err := json.Marshal(o)
	ready(t, err)
	var value T
	if err := yaml.UnmarshalStrict(content, &value); err != nil {
		t.Fatalf("%s: %v", o.name(), err)
	}
	return value
}

// write is what somebody does to an object, in YAML: the object afterwards, "" if it is deleted, and
// before, "" if it is created.
type write struct {
	user          user.Info
	object, older string
}

func (w write) operation() admission.Operation {
	switch {
	case w.older == "":
		return admission.Create
	case w.object == "":
		return admission.Delete
	default:
		return admission.Update
	}
}

// judge is what the API server does with a policy: the reasons why it refuses, none where it does not. The
// write is to the subresource that the policy is for.
func judge(t *testing.T, policy admissionv1.ValidatingAdmissionPolicy, w write) (reasons []string) {
	t.Helper()
	kind := schema.GroupVersionKind{}
	read := func(text string) runtime.Object {
		if text == "" {
			return nil
		}
		content, err := yaml.YAMLToJSONStrict([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		o, k, err := scheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
		if runtime.IsNotRegisteredError(err) { // that of a definition
			o, k, err = unstructured.UnstructuredJSONScheme.Decode(content, nil, nil)
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		kind = *k
		return o
	}
	after, before := read(w.object), read(w.older)
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	_, subresource, _ := strings.Cut(policy.Spec.MatchConstraints.ResourceRules[0].Resources[0], "/")
	attributes := &admission.VersionedAttributes{
		Attributes: admission.NewAttributesRecord(after, before, kind, "team", "x", resource, subresource,
			w.operation(), nil, false, w.user),
		VersionedObject: admission.NewLazyObject(after), VersionedOldObject: admission.NewLazyObject(before),
		VersionedKind: kind,
	}
	if !concerns(t, policy, attributes) {
		return nil
	}
	const budget = celconfig.RuntimeCELCostBudget
	result := compile(t, policy).Validate(t.Context(), resource, attributes, nil, nil, budget, nil)
	for _, d := range result.Decisions {
		if d.Evaluation == validating.EvalError {
			t.Errorf("%s: %s", w.object, d.Message)
		}
		if d.Action == validating.ActionDeny {
			reasons = append(reasons, d.Message)
		}
	}
	return reasons
}

// concerns reports whether the API server asks a policy about a write.
func concerns(t *testing.T, policy admissionv1.ValidatingAdmissionPolicy, a admission.Attributes) bool {
	t.Helper()
	constraints := policy.Spec.MatchConstraints.DeepCopy()
	constraints.NamespaceSelector, constraints.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	policy.Spec.MatchConstraints = constraints
	matches, _, _, err := generic.NewPolicyMatcher(matching.NewMatcher(nil, nil)).DefinitionMatches(a,
		admission.NewObjectInterfacesFromScheme(scheme.Scheme),
		validating.NewValidatingAdmissionPolicyAccessor(&policy))
	ready(t, err)
	return matches
}

// compile compiles a policy as the API server of the oldest version that we support does. An expression that
// cannot be compiled fails the test.
func compile(t *testing.T, policy admissionv1.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	variables := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	compiler, err := plugincel.NewCompositedCompiler(celenv.MustBaseEnvSet(oldest))
	ready(t, err)
	for _, v := range policy.Spec.Variables {
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression},
			variables, celenv.NewExpressions); result.Error != nil {
			t.Errorf("%s: variable %s: %v", policy.Name, v.Name, result.Error)
		}
	}
	condition := func(list []plugincel.ExpressionAccessor) plugincel.ConditionEvaluator {
		for _, e := range list {
			if e == nil {
				continue
			}
			if result := compiler.CompileCELExpression(e, variables, celenv.NewExpressions); result.Error != nil {
				t.Errorf("%s: %s: %v", policy.Name, e.GetExpression(), result.Error)
			}
		}
		return compiler.CompileCondition(list, variables, celenv.NewExpressions)
	}
	var matching, validations, messages []plugincel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		matching = append(matching, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations,
			&validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		var message plugincel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	var matcher matchconditions.Matcher
	if len(matching) > 0 {
		matcher = matchconditions.NewMatcher(condition(matching), policy.Spec.FailurePolicy, "policy", "validate",
			policy.Name)
	}
	return validating.NewValidator(condition(validations), matcher, condition(nil), condition(messages),
		policy.Spec.FailurePolicy, nil)
}

// policyNamed is a policy of the manifests, by the end of its name. Its binding denies, wherever the policy
// matches.
func policyNamed(t *testing.T, objects []object, suffix string) admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	return policyBound(t, objects, suffix, admissionv1.Deny)
}

// policyBound is the same for a policy with another action.
func policyBound(
	t *testing.T, objects []object, suffix string, action admissionv1.ValidationAction,
) admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	var found []admissionv1.ValidatingAdmissionPolicy
	bound := false
	for _, o := range objects {
		switch name, _ := o.at("metadata", "name").(string); {
		case !strings.HasSuffix(name, suffix):
		case o.at("kind") == "ValidatingAdmissionPolicy":
			found = append(found, decode[admissionv1.ValidatingAdmissionPolicy](t, o))
		case o.at("kind") == "ValidatingAdmissionPolicyBinding":
			b := decode[admissionv1.ValidatingAdmissionPolicyBinding](t, o)
			bound = b.Spec.PolicyName == b.Name && b.Spec.MatchResources == nil && b.Spec.ParamRef == nil &&
				fmt.Sprint(b.Spec.ValidationActions) == fmt.Sprintf("[%s]", action)
		}
	}
	if len(found) != 1 || !bound {
		t.Fatalf("%d policies are called %s, bound is %t", len(found), suffix, bound)
	}
	return found[0]
}
