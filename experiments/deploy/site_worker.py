"""Answer messages at a real site: its runtime, with what the strategies make of a job.

python -m fedcal.experiments.deploy.site_worker --worker     imported once; forks for each message
python -m fedcal.experiments.deploy.site_worker ARGUMENTS    one message, cold
"""

import sys

from fedcal.clients.site.process.runtime import main
from fedcal.strategies.server.job import terms_of_job

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], terms_of_job))
