// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// TestPoliciesPermitUnrelatedUpdates: a policy that validates updates by every user compares the object with
// the old one. Otherwise it denies also the update that adds or removes a finalizer of an object from before
// the policy, so that the object is never allocated nor deleted.
func TestPoliciesPermitUnrelatedUpdates(t *testing.T) {
	for name, pattern := range map[string]string{
		"alignment": "alignment/*.yaml", "publish": "publish/*.yaml", "dra": "dra/*.yaml",
		"chart": "../test/others/chart/testdata/*.golden.yaml",
	} {
		t.Run(name, func(t *testing.T) {
			policies := readAll[admissionv1.ValidatingAdmissionPolicy](t, pattern, "ValidatingAdmissionPolicy")
			if len(policies) == 0 {
				t.Fatal("no policy")
			}
			for _, p := range policies {
				if updated := validatesEveryUpdate(p); updated != nil {
					t.Errorf("%s validates every update of %v", p.Name, updated)
				}
			}
		})
	}
}

// validatesEveryUpdate returns the resources whose updates by every user a policy validates, without regard
// to the old object; none for a policy that does not.
func validatesEveryUpdate(p admissionv1.ValidatingAdmissionPolicy) (resources []string) {
	var expressions, conditions []string
	for _, c := range p.Spec.MatchConditions {
		conditions = append(conditions, c.Expression)
	}
	for _, v := range p.Spec.Variables {
		expressions = append(expressions, v.Expression)
	}
	for _, v := range p.Spec.Validations {
		expressions = append(expressions, v.Expression)
	}
	if strings.Contains(strings.Join(conditions, "\n"), "request.userInfo.username") ||
		strings.Contains(strings.Join(slices.Concat(conditions, expressions), "\n"), "oldObject") {
		return nil
	}
	for _, r := range p.Spec.MatchConstraints.ResourceRules {
		if slices.Contains(r.Operations, admissionv1.Update) ||
			slices.Contains(r.Operations, admissionv1.OperationAll) {
			resources = append(resources, r.Resources...)
		}
	}
	return resources
}
