// Package envtest runs one control plane of sigs.k8s.io/controller-runtime/pkg/envtest, as an operator's suite does:
// a kind with rules, defaulting, validating and conversion webhooks, typed clients, a second user.
package envtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var widget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

func ptr[T any](value T) *T { return &value }

func version(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
	return apiextensionsv1.CustomResourceDefinitionVersion{
		Name: name, Served: true, Storage: storage,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object",
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
				Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"size":         {Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("1")}},
					"limit":        {Type: "integer"},
					"color":        {Type: "string"},
					"nodeSelector": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
				},
				XValidations: apiextensionsv1.ValidationRules{{
					Rule: "!has(self.limit) || self.size <= self.limit", Message: "size must not exceed limit",
				}},
			}},
		}},
	}
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Conversion: &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter,
				Webhook: &apiextensionsv1.WebhookConversion{
					ClientConfig:             &apiextensionsv1.WebhookClientConfig{},
					ConversionReviewVersions: []string{"v1"},
				},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true), version("v2", false)},
		},
	}
}

func rules() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
	}}
}

func service(path string) admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "x", Namespace: "default", Path: &path}}
}

func start(t *testing.T) (*envtest.Environment, *rest.Config) {
	t.Helper()
	environment := &envtest.Environment{}
	environment.CRDs = []*apiextensionsv1.CustomResourceDefinition{definition()}
	environment.WebhookInstallOptions = envtest.WebhookInstallOptions{
		IgnoreSchemeConvertible: true,
		MutatingWebhooks: []*admissionv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "defaults"},
			Webhooks: []admissionv1.MutatingWebhook{{
				Name: "defaults.example.com", Rules: rules(), ClientConfig: service("/default"),
				SideEffects: ptr(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			}},
		}},
		ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "checks"},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name: "checks.example.com", Rules: rules(), ClientConfig: service("/validate"),
				SideEffects: ptr(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			}},
		}},
	}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	return environment, config
}

func serveWebhooks(t *testing.T, options envtest.WebhookInstallOptions) {
	t.Helper()
	server := webhook.NewServer(webhook.Options{
		Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
	})
	server.Register("/default", &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(request.Object.Raw, object); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if _, set, _ := unstructured.NestedString(object.Object, "spec", "color"); !set {
			_ = unstructured.SetNestedField(object.Object, "red", "spec", "color")
		}
		changed, _ := json.Marshal(object)
		return admission.PatchResponseFromRaw(request.Object.Raw, changed)
	})})
	server.Register("/validate", &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		if strings.Contains(string(request.Object.Raw), `"color":"pink"`) {
			return admission.Denied("pink is not a color by " + request.UserInfo.Username)
		}
		return admission.Allowed("")
	})})
	server.Register("/convert", http.HandlerFunc(convert))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { _ = server.Start(ctx) }()
	deadline := time.Now().Add(10 * time.Second)
	for server.StartedChecker()(nil) != nil {
		if time.Now().After(deadline) {
			t.Fatal("the webhook server did not start")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func convert(writer http.ResponseWriter, request *http.Request) {
	review := &apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(request.Body).Decode(review); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		object := &unstructured.Unstructured{}
		_ = json.Unmarshal(raw.Raw, object)
		object.SetAPIVersion(review.Request.DesiredAPIVersion)
		color, _, _ := unstructured.NestedString(object.Object, "spec", "color")
		if strings.HasSuffix(review.Request.DesiredAPIVersion, "v2") {
			color = strings.ToUpper(color)
		} else {
			color = strings.ToLower(color)
		}
		_ = unstructured.SetNestedField(object.Object, color, "spec", "color")
		converted, _ := json.Marshal(object)
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Raw: converted})
	}
	review.Request = nil
	_ = json.NewEncoder(writer).Encode(review)
}

func newWidget(name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(widget)
	object.SetNamespace("default")
	object.SetName(name)
	return object
}

func TestAnOperatorsSuite(t *testing.T) {
	environment, config := start(t)
	serveWebhooks(t, environment.WebhookInstallOptions)
	ctx := context.Background()
	objects, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}

	t.Run("defaults of the schema and of the webhook are set", func(t *testing.T) {
		object := newWidget("one", map[string]any{"nodeSelector": map[string]any{"disk": "ssd"}})
		if err := objects.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
		spec := object.Object["spec"].(map[string]any)
		if spec["size"] != int64(1) || spec["color"] != "red" {
			t.Fatalf("unexpected spec %v", spec)
		}
	})

	t.Run("a rule rejects an object", func(t *testing.T) {
		err := objects.Create(ctx, newWidget("two", map[string]any{"size": int64(3), "limit": int64(2)}))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "size must not exceed limit") {
			t.Fatalf("unexpected error %v", err)
		}
	})

	t.Run("the webhook rejects an object and sees the user of the certificate", func(t *testing.T) {
		err := objects.Create(ctx, newWidget("three", map[string]any{"color": "pink"}))
		expected := `admission webhook "checks.example.com" denied the request: pink is not a color by admin`
		if !apierrors.IsForbidden(err) || err.Error() != expected {
			t.Fatalf("unexpected error %v", err)
		}
	})

	t.Run("another version is converted", func(t *testing.T) {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(widget.GroupKind().WithVersion("v2"))
		if err := objects.Get(ctx, client.ObjectKey{Namespace: "default", Name: "one"}, object); err != nil {
			t.Fatal(err)
		}
		if color, _, _ := unstructured.NestedString(object.Object, "spec", "color"); color != "RED" {
			t.Fatalf("unexpected color %q", color)
		}
	})

	t.Run("a typed client speaks protobuf", func(t *testing.T) {
		binary := rest.CopyConfig(config)
		binary.ContentType, binary.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
		typed := kubernetes.NewForConfigOrDie(binary)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}},
		}
		created, err := typed.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if created.Spec.RestartPolicy != corev1.RestartPolicyAlways || len(created.Spec.Volumes) != 0 {
			t.Fatalf("unexpected spec %v", created.Spec)
		}
		if err := typed.CoreV1().Pods("default").Delete(ctx, "pod", metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("another user has only the rights of a role", func(t *testing.T) {
		user, err := environment.AddUser(envtest.User{Name: "eve", Groups: []string{"guests"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		typed := kubernetes.NewForConfigOrDie(user.Config())
		_, err = typed.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		expected := `secrets is forbidden: User "eve" cannot list resource "secrets" in API group "" in the namespace "default"`
		if !apierrors.IsForbidden(err) || err.Error() != expected {
			t.Fatalf("unexpected error %v", err)
		}
	})

	t.Run("a caller without a certificate is anonymous", func(t *testing.T) {
		typed := kubernetes.NewForConfigOrDie(rest.AnonymousClientConfig(config))
		_, err := typed.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "system:anonymous" cannot list resource "pods"`) {
			t.Fatalf("unexpected error %v", err)
		}
	})

	t.Run("no controller acts", func(t *testing.T) {
		nodes := &corev1.NodeList{}
		if err := objects.List(ctx, nodes); err != nil || len(nodes.Items) != 0 {
			t.Fatalf("unexpected nodes %v, error %v", nodes.Items, err)
		}
	})
}

// TestStart reports the fastest of some starts, and of the first writes after them, for the caller to compare.
func TestStart(t *testing.T) {
	start, write := time.Hour, time.Hour
	for range 3 {
		environment := &envtest.Environment{}
		began := time.Now()
		config, err := environment.Start()
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		createConfigMap(t, config, "first")
		start, write = min(start, started.Sub(began)), min(write, time.Since(started))
		if err := environment.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintf(os.Stdout, "start seconds: %.3f, first write seconds: %.3f\n", start.Seconds(), write.Seconds())
}

// TestObjectsOutliveTheAPIServer stops the API server alone, and starts it again on the same etcd.
func TestObjectsOutliveTheAPIServer(t *testing.T) {
	environment := &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{gadgets()}}}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	created := createConfigMap(t, config, "kept")
	server := environment.ControlPlane.GetAPIServer()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	user, err := environment.ControlPlane.AddUser(envtest.User{Name: "again", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(user.Config())
	if err != nil {
		t.Fatal(err)
	}
	read, err := typed.CoreV1().ConfigMaps("default").Get(context.Background(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if read.UID != created.UID || read.ResourceVersion != created.ResourceVersion {
		t.Fatalf("read %s at %s, created %s at %s", read.UID, read.ResourceVersion, created.UID, created.ResourceVersion)
	}
	if _, err := typed.Discovery().ServerResourcesForGroupVersion("example.com/v1"); err != nil {
		t.Fatalf("the definition is not served again: %v", err)
	}
}

func gadgets() *apiextensionsv1.CustomResourceDefinition {
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: names,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true)},
		},
	}
}

func createConfigMap(t *testing.T, config *rest.Config, name string) *corev1.ConfigMap {
	t.Helper()
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": "value"}}
	created, err := typed.CoreV1().ConfigMaps("default").Create(context.Background(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}
