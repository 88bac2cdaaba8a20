# Gates an image: see README.md beside it.

variable "gpu" {
  type        = string
  default     = "H100 SXM"
  description = "The GPU that the image is for, as `gpudoctor explain gpus` knows it; `here`: the builder has it."
}

variable "python" {
  type        = string
  default     = "/usr/bin/python3"
  description = "The interpreter in the image whose torch is meant."
}

variable "gpudoctor_version" {
  type    = string
  default = "@VERSION@"
}

variable "host" {
  type        = string
  default     = ""
  description = "For the example's source alone: a machine that is there, reached by ssh."
}

# In place of your own source (amazon-ebs, googlecompute, qemu, ...), which then belongs into `sources` below.
source "null" "machine" {
  ssh_host     = var.host
  ssh_username = "root"
}

build {
  sources = ["source.null.machine"]

  # Here: the provisioners that install the driver and your software.

  provisioner "shell" {
    script           = "${path.root}/gate.sh"
    execute_command  = "chmod +x {{ .Path }}; sudo env {{ .Vars }} {{ .Path }}"
    environment_vars = [
      "GPU=${var.gpu}",
      "PYTHON=${var.python}",
      "VERSION=${var.gpudoctor_version}",
      # "PIP_INDEX_URL=https://pypi.example.com/simple",
      # "PYZ=/tmp/gpudoctor.pyz", put there by a file provisioner: nothing is installed then, no network is needed
    ]
    valid_exit_codes = [0]
  }

  provisioner "file" {
    direction   = "download"
    source      = "/usr/share/gpudoctor/image.json"
    destination = "${path.root}/gpudoctor.json"
  }
}
