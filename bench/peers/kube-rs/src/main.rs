//! The kube-rs peer: the same two operators as the other peers, as its guide recommends them: a reflected watch with
//! a streaming list, filtered by generation, watches of the children's metadata, children by server-side apply, the
//! status by merge patch.

use std::{collections::BTreeMap, env, process::ExitCode, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec, Service, ServicePort, ServiceSpec},
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        Config, Controller, WatchStreamExt, controller::Action, predicates, reflector, watcher,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::json;

const WORKERS: u16 = 32;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "bench.kapsa.dev",
    version = "v1",
    kind = "Sample",
    namespaced,
    status = "SampleStatus",
    schema = "disabled"
)]
struct SampleSpec {
    value: i64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SampleStatus {
    #[serde(default)]
    value: i64,
}

struct Operator {
    client: Client,
    owned: bool,
}

async fn reconcile(sample: Arc<Sample>, operator: Arc<Operator>) -> Result<Action, kube::Error> {
    if operator.owned {
        apply_children(&sample, &operator.client).await?;
    }
    let value = sample.spec.value;
    if sample.status.as_ref().map(|status| status.value) != Some(value) {
        let samples: Api<Sample> = Api::namespaced(operator.client.clone(), &namespace_of(&sample));
        let patch = Patch::Merge(json!({"status": {"value": value}}));
        samples
            .patch_status(&sample.name_any(), &PatchParams::default(), &patch)
            .await?;
    }
    Ok(Action::await_change())
}

async fn apply_children(sample: &Sample, client: &Client) -> Result<(), kube::Error> {
    let (name, namespace) = (sample.name_any(), namespace_of(sample));
    let params = PatchParams::apply("sample").force();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    deployments
        .patch(&name, &params, &Patch::Apply(deployment_of(sample)))
        .await?;
    let services: Api<Service> = Api::namespaced(client.clone(), &namespace);
    services
        .patch(&name, &params, &Patch::Apply(service_of(sample)))
        .await?;
    Ok(())
}

fn namespace_of(sample: &Sample) -> String {
    sample.namespace().unwrap_or_default()
}

fn labels_of(sample: &Sample) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), sample.name_any())])
}

fn metadata_of(sample: &Sample) -> ObjectMeta {
    ObjectMeta {
        name: Some(sample.name_any()),
        owner_references: Some(sample.controller_owner_ref(&()).into_iter().collect()),
        ..ObjectMeta::default()
    }
}

fn deployment_of(sample: &Sample) -> Deployment {
    let container = Container {
        name: "app".to_owned(),
        image: Some("example.com/app:1".to_owned()),
        ..Container::default()
    };
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels_of(sample)),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![container],
            ..PodSpec::default()
        }),
    };
    let selector = LabelSelector {
        match_labels: Some(labels_of(sample)),
        ..LabelSelector::default()
    };
    Deployment {
        metadata: metadata_of(sample),
        spec: Some(DeploymentSpec {
            selector,
            template,
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn service_of(sample: &Sample) -> Service {
    let port = ServicePort {
        port: 80,
        target_port: Some(IntOrString::Int(80)),
        ..ServicePort::default()
    };
    Service {
        metadata: metadata_of(sample),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            selector: Some(labels_of(sample)),
            ports: Some(vec![port]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn retry(sample: Arc<Sample>, error: &kube::Error, _: Arc<Operator>) -> Action {
    eprintln!("cannot reconcile {}: {error}", sample.name_any());
    Action::requeue(Duration::from_secs(1))
}

async fn run(owned: bool) -> Result<(), kube::Error> {
    let client = Client::try_default().await?;
    let config = || watcher::Config::default().streaming_lists();
    let (reader, writer) = reflector::store();
    let samples = watcher(Api::<Sample>::all(client.clone()), config())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(predicates::generation, Default::default());
    let mut controller = Controller::for_stream(samples, reader)
        .with_config(Config::default().concurrency(WORKERS))
        .shutdown_on_signal();
    if owned {
        controller = controller
            .owns(Api::<Deployment>::all(client.clone()), config())
            .owns(Api::<Service>::all(client.clone()), config());
    }
    let outcomes = controller.run(reconcile, retry, Arc::new(Operator { client, owned }));
    outcomes
        .for_each(|outcome| async move {
            if let Err(error) = outcome {
                eprintln!("{error}");
            }
        })
        .await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(env::args().any(|argument| argument == "--owned")).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}
