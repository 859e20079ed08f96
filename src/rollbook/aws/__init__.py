"""SageMaker HyperPod and AWS Session Manager, spoken natively; needs the extra `aws`."""
