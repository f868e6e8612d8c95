package deploylint

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var kedaVersion = schema.GroupVersion{Group: "keda.sh", Version: "v1alpha1"}

// The fields of KEDA's kinds that our files use, with KEDA's names and types. Importing its module would double the compile time of these checks.
type (
	// ScaledObject is a deployment that KEDA scales.
	ScaledObject struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			ScaleTargetRef  autoscalingv2.CrossVersionObjectReference `json:"scaleTargetRef"`
			PollingInterval *int32                                    `json:"pollingInterval"`
			CooldownPeriod  *int32                                    `json:"cooldownPeriod"`
			MinReplicaCount *int32                                    `json:"minReplicaCount"`
			MaxReplicaCount *int32                                    `json:"maxReplicaCount"`
			Triggers        []struct {
				Type              string            `json:"type"`
				Metadata          map[string]string `json:"metadata"`
				AuthenticationRef struct {
					Name string `json:"name"`
				} `json:"authenticationRef"`
			} `json:"triggers"`
		} `json:"spec"`
	}
	// TriggerAuthentication has the secrets of triggers.
	TriggerAuthentication struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			SecretTargetRef []struct {
				Parameter string `json:"parameter"`
				Name      string `json:"name"`
				Key       string `json:"key"`
			} `json:"secretTargetRef"`
		} `json:"spec"`
	}
)

// DeepCopyObject implements runtime.Object. Nothing copies what is decoded here.
func (o *ScaledObject) DeepCopyObject() runtime.Object { return o }

// DeepCopyObject implements runtime.Object. Nothing copies what is decoded here.
func (o *TriggerAuthentication) DeepCopyObject() runtime.Object { return o }
