"""A scheduler's stand-in: an executor that writes down what each job asks for, and runs it in a process of its own."""

import json
import os
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=True,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)


class Executor(RemoteExecutor):
    """Submits by starting a process; STAND_IN_LOG is the file that it writes to, one JSON object a submission. With
    STAND_IN_FAILS every job fails after three seconds, in which the others are submitted.
    """

    def __post_init__(self) -> None:
        self.log = Path(os.environ["STAND_IN_LOG"])

    def run_job(self, job: JobExecutorInterface) -> None:
        rules = sorted(part.rule.name for part in job.jobs) if job.is_group() else [job.rule.name]
        asked = {name: value for name, value in job.resources.items() if isinstance(value, int | str)}
        with self.log.open("a") as file:
            file.write(json.dumps({"rules": rules, "asked": asked, "beside": len(self.active_jobs)}) + "\n")
        process = subprocess.Popen(
            "sleep 3; false" if os.environ.get("STAND_IN_FAILS") else self.format_job_exec(job),
            shell=True,
            stdout=subprocess.DEVNULL,
            stderr=self.log.with_suffix(".err").open("ab"),
        )
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=str(process.pid), aux={"process": process}))

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        for job in active_jobs:
            status = job.aux["process"].poll()
            if status is None:
                yield job
            elif status == 0:
                self.report_job_success(job)
            else:
                self.report_job_error(job)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        for job in active_jobs:
            job.aux["process"].terminate()
