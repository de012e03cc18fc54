"""A drop-in for the programs that Go's envtest starts: `etcd`, `kube-apiserver` and `kubectl`.

assets              writes the directory that KUBEBUILDER_ASSETS names
etcd_program        the program `etcd`: holds the state and the engine, and answers health checks
apiserver_program   the program `kube-apiserver`: opens its port, and passes it to the engine with its flags
flags               the flags of kube-apiserver: used, without effect, refused
engine              the embedded engine without controllers, for one kube-apiserver after the other
"""
