// The controller-runtime peer: the same two operators as the Kapsa and kopf ones next to it, as its book recommends
// them: typed client, cached reads, owned watches, status by merge patch. Children are made with CreateOrUpdate, the
// cheapest way it has; with -apply by server-side apply, which is what Kapsa does.
package main

import (
	"context"
	"flag"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1apply "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

type SampleSpec struct {
	Value int64 `json:"value"`
}

type SampleStatus struct {
	Value int64 `json:"value,omitempty"`
}

type Sample struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SampleSpec   `json:"spec,omitempty"`
	Status            SampleStatus `json:"status,omitempty"`
}

type SampleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Sample `json:"items"`
}

func (in *Sample) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (in *SampleList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Sample, len(in.Items))
	for i := range in.Items {
		out.Items[i] = *in.Items[i].DeepCopyObject().(*Sample)
	}
	return &out
}

type reconciler struct {
	client.Client
	owned, apply bool
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var sample Sample
	if err := r.Get(ctx, request.NamespacedName, &sample); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.owned {
		children := r.children
		if r.apply {
			children = r.applyChildren
		}
		if err := children(ctx, &sample); err != nil {
			return ctrl.Result{}, err
		}
	}
	if sample.Status.Value == sample.Spec.Value {
		return ctrl.Result{}, nil
	}
	before := sample.DeepCopyObject().(*Sample)
	sample.Status.Value = sample.Spec.Value
	return ctrl.Result{}, r.Status().Patch(ctx, &sample, client.MergeFrom(before))
}

func (r *reconciler) children(ctx context.Context, sample *Sample) error {
	labels := map[string]string{"app": sample.Name}
	meta := metav1.ObjectMeta{Name: sample.Name, Namespace: sample.Namespace}
	deployment := &appsv1.Deployment{ObjectMeta: meta}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		if len(deployment.Spec.Template.Spec.Containers) == 0 {
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app"}}
		}
		deployment.Spec.Template.Spec.Containers[0].Image = "example.com/app:1"
		return controllerutil.SetControllerReference(sample, deployment, r.Scheme())
	}); err != nil {
		return err
	}
	service := &corev1.Service{ObjectMeta: meta}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, service, func() error {
		service.Spec.ClusterIP = corev1.ClusterIPNone
		service.Spec.Selector = labels
		if len(service.Spec.Ports) == 0 {
			service.Spec.Ports = []corev1.ServicePort{{}}
		}
		service.Spec.Ports[0].Port = 80
		service.Spec.Ports[0].TargetPort = intstr.FromInt32(80)
		return controllerutil.SetControllerReference(sample, service, r.Scheme())
	})
	return err
}

func (r *reconciler) applyChildren(ctx context.Context, sample *Sample) error {
	labels := map[string]string{"app": sample.Name}
	owner := metav1apply.OwnerReference().
		WithAPIVersion("bench.kapsa.dev/v1").WithKind("Sample").WithName(sample.Name).WithUID(sample.UID).
		WithController(true).WithBlockOwnerDeletion(true)
	template := corev1apply.PodTemplateSpec().WithLabels(labels).WithSpec(corev1apply.PodSpec().
		WithContainers(corev1apply.Container().WithName("app").WithImage("example.com/app:1")))
	deployment := appsv1apply.Deployment(sample.Name, sample.Namespace).WithOwnerReferences(owner).
		WithSpec(appsv1apply.DeploymentSpec().
			WithSelector(metav1apply.LabelSelector().WithMatchLabels(labels)).WithTemplate(template))
	if err := r.Apply(ctx, deployment, client.FieldOwner("sample"), client.ForceOwnership); err != nil {
		return err
	}
	port := corev1apply.ServicePort().WithPort(80).WithTargetPort(intstr.FromInt32(80))
	service := corev1apply.Service(sample.Name, sample.Namespace).WithOwnerReferences(owner).
		WithSpec(corev1apply.ServiceSpec().WithClusterIP(corev1.ClusterIPNone).WithSelector(labels).WithPorts(port))
	return r.Apply(ctx, service, client.FieldOwner("sample"), client.ForceOwnership)
}

func main() {
	owned := flag.Bool("owned", false, "own a Deployment and a Service each")
	apply := flag.Bool("apply", false, "make the children by server-side apply")
	workers := flag.Int("workers", 32, "concurrent reconciles")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	must(clientgoscheme.AddToScheme(scheme))
	version := schema.GroupVersion{Group: "bench.kapsa.dev", Version: "v1"}
	scheme.AddKnownTypes(version, &Sample{}, &SampleList{})
	metav1.AddToGroupVersion(scheme, version)

	config := ctrl.GetConfigOrDie()
	config.QPS = -1 // the API server's priority and fairness is the only limit, as for the other peers
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	must(err)
	build := ctrl.NewControllerManagedBy(manager).
		For(&Sample{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: *workers})
	if *owned {
		build = build.Owns(&appsv1.Deployment{}).Owns(&corev1.Service{})
	}
	must(build.Complete(&reconciler{Client: manager.GetClient(), owned: *owned, apply: *apply}))
	must(manager.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		ctrl.Log.Error(err, "cannot start")
		os.Exit(1)
	}
}
