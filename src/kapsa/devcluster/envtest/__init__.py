"""A drop-in for the programs that Go's envtest starts: `etcd`, `kube-apiserver` and `kubectl`.

assets              writes the directory that KUBEBUILDER_ASSETS names
etcd_program        the program `etcd`: it answers health checks; the state is in the other program
apiserver_program   the program `kube-apiserver`: reads the flags, opens the port, starts the engine
flags               the flags of kube-apiserver: used, without effect, refused
engine              the embedded engine without controllers, behind envtest's certificates
"""
